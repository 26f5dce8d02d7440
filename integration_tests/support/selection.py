"""A part of a generated table of cases, as the arguments of a command select it."""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Sequence
from typing import TypeVar

Case = TypeVar("Case")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that `selected` reads."""
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=0, help="so many, spread over the table")
    parser.add_argument("--part", type=int, default=0, help="with --parts N: every N-th case, from this one on")
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no case after that; shuffles the cases")


def spread(found: Sequence[Case], count: int) -> list[Case]:
    """Return `count` of the cases, spread over the table; all if there are fewer."""
    return [found[number * len(found) // count] for number in range(count)] if count < len(found) else list(found)


def selected(found: Sequence[Case], arguments: argparse.Namespace) -> list[Case]:
    """Return the part of the cases that the arguments select."""
    chosen = spread(found, arguments.cases or len(found))
    if arguments.minutes < math.inf:
        random.Random(arguments.seed).shuffle(chosen)
    return chosen[arguments.part :: arguments.parts]
