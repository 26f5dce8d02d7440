"""What the character-level examples share: text, sizes of the model, arguments, and the line that says the result.

The text is the source code of Python's standard library, which lies on every machine that runs Python. A byte is a
character, so nothing is downloaded and there is no vocabulary to make.
"""

from __future__ import annotations

import argparse
import json
import math
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paceline.config import EXCHANGES
from paceline.pipelined.settings import Pipelined

VOCABULARY = 256
CONTEXT = 64  # characters that a prediction sees at most
WIDTH = 64
HEADS = 4
LAYERS = 2

TRAINING_BYTES = 2_000_000
HELD_OUT_BYTES = 64_000
HELD_OUT_EVERY = 10  # every tenth file is held out

BEGINNING = 0.1  # the part of the steps in which the learning rate grows

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Windows:
    """Pieces of text: `inputs` (n, CONTEXT) and `targets` (n, CONTEXT), the same one character later; int32."""

    inputs: Array
    targets: Array

    def batch(self, number: int, size: int) -> tuple[Array, Array]:
        """Windows [number * size, (number + 1) * size)."""
        part = slice(number * size, (number + 1) * size)
        return self.inputs[part], self.targets[part]


def _text(paths: Iterable[Path], most_bytes: int) -> Array:
    """The files one after the other, up to `most_bytes`."""
    whole = b""
    for path in paths:
        whole += path.read_bytes()
        if len(whole) >= most_bytes:
            break
    return np.frombuffer(whole[:most_bytes], np.uint8).astype(np.int32)


def _cut(text: Array, starts: Array) -> Windows:
    places = starts[:, None] + np.arange(CONTEXT)
    return Windows(text[places], text[places + 1])


def training_text(rank: int, size: int) -> Array:
    """This rank's share of the training text: characters, int32."""
    paths = _files()
    text = _text((path for number, path in enumerate(paths) if number % HELD_OUT_EVERY), TRAINING_BYTES)
    return np.array_split(text, size)[rank]


def held_out_text() -> Array:
    """The text of files that no rank trains on: characters, int32."""
    return _text(_files()[::HELD_OUT_EVERY], HELD_OUT_BYTES)


def training(rank: int, size: int, count: int, seed: int) -> Windows:
    """`count` windows from random places of this rank's share of the training text."""
    share = training_text(rank, size)
    return _cut(share, np.random.default_rng([seed, rank]).integers(0, len(share) - CONTEXT, count))


def held_out() -> Windows:
    """All windows of the text that no rank trains on, side by side."""
    text = held_out_text()
    return _cut(text, np.arange(0, len(text) - CONTEXT, CONTEXT))


def _files() -> list[Path]:
    # Only the top folder: what else is below it, such as site-packages, differs between machines.
    return sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that all character-level examples have."""
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=16, help="pieces of text in a batch of one rank")
    parser.add_argument(
        "--learning-rate", type=float, default=2e-3, help="the largest: it grows at first, then falls to 0"
    )
    parser.add_argument("--seed", type=int, default=0, help="chooses first weights and batches")


def add_exchange(parser: argparse.ArgumentParser) -> None:
    """The argument that examples have whose ranks exchange gradients."""
    parser.add_argument("--exchange", choices=EXCHANGES, help="default: what PACELINE_EXCHANGE says")


def arguments(description: str) -> argparse.Namespace:
    """The arguments of an example that trains on windows of one length."""
    parser = argparse.ArgumentParser(description=description)
    add_arguments(parser)
    add_exchange(parser)
    parser.add_argument(
        "--warmup-steps", type=int, default=0, help="with --exchange pipelined: updates that are synchronous first"
    )
    return parser.parse_args()


def rate_factor(step: int, steps: int) -> float:
    """By what to multiply the learning rate in step 0 to `steps` - 1: a linear beginning, then half a cosine to 0."""
    begin = max(1, round(BEGINNING * steps))
    rest = max(0.0, (step - begin) / max(1, steps - begin))
    return min(1.0, (step + 1) / begin) * 0.5 * (1.0 + math.cos(math.pi * rest))


def exchange(chosen: argparse.Namespace) -> str | Pipelined | None:
    """What `chosen` means as the argument `exchange` of Paceline's wrappers."""
    return Pipelined(warmup_steps=chosen.warmup_steps) if chosen.exchange == "pipelined" else chosen.exchange


def show(step: int, steps: int, loss: float) -> None:
    """One line about the training."""
    print(f"step {step}/{steps} loss {loss:.4f}", flush=True)


def conclude(framework: str, loss: float, accuracy: float, equal: bool) -> None:
    """Say how it ended, for people and, in the line that begins with RESULT, for benchmarks/compare_exchanges.py.

    `equal`: whether all ranks hold the same weights.
    """
    print(f"{framework}: held-out loss {loss:.4f}, {accuracy:.2%} of the characters predicted", flush=True)
    result = {"framework": framework, "loss": loss, "accuracy": accuracy, "equal": equal}
    print("RESULT " + json.dumps(result), flush=True)
