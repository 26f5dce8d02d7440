"""Common parts of the character-level examples: text, sizes of the model, arguments, and the line with the result.

The text is the source code of Python's standard library, which every machine with Python has. A byte is a character, so
nothing is downloaded and no vocabulary is built.
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
CONTEXT = 64  # longest context of a prediction
WIDTH = 64
HEADS = 4
LAYERS = 2

TRAINING_BYTES = 2_000_000
HELD_OUT_BYTES = 64_000
HELD_OUT_EVERY = 10  # every tenth file is held out

BEGINNING = 0.1  # share of the steps in which the learning rate grows

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Windows:
    """Windows of text: `inputs` (n, CONTEXT) and `targets` (n, CONTEXT), shifted by one character; int32."""

    inputs: Array
    targets: Array

    def batch(self, number: int, size: int) -> tuple[Array, Array]:
        """Return windows [number * size, (number + 1) * size)."""
        part = slice(number * size, (number + 1) * size)
        return self.inputs[part], self.targets[part]


def _text(paths: Iterable[Path], most_bytes: int) -> Array:
    """Concatenate the files, up to `most_bytes`."""
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
    """Text of files that no rank trains on: characters, int32."""
    return _text(_files()[::HELD_OUT_EVERY], HELD_OUT_BYTES)


def training(rank: int, size: int, count: int, seed: int) -> Windows:
    """Draw `count` windows from random places of this rank's share of the training text."""
    share = training_text(rank, size)
    return _cut(share, np.random.default_rng([seed, rank]).integers(0, len(share) - CONTEXT, count))


def held_out() -> Windows:
    """All windows of the held-out text, without overlap."""
    text = held_out_text()
    return _cut(text, np.arange(0, len(text) - CONTEXT, CONTEXT))


def _files() -> list[Path]:
    # Only the top folder: others below it, such as site-packages, differ between machines.
    return sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of all character-level examples."""
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=16, help="pieces of text in a batch of one rank")
    parser.add_argument(
        "--learning-rate", type=float, default=2e-3, help="the largest: it grows at first, then falls to 0"
    )
    parser.add_argument("--seed", type=int, default=0, help="chooses first weights and batches")


def add_exchange(parser: argparse.ArgumentParser) -> None:
    """Add the argument of examples whose ranks exchange gradients."""
    parser.add_argument("--exchange", choices=EXCHANGES, help="default: what PACELINE_EXCHANGE says")


def arguments(description: str) -> argparse.Namespace:
    """Parse the arguments of an example that trains on windows of one length."""
    parser = argparse.ArgumentParser(description=description)
    add_arguments(parser)
    add_exchange(parser)
    parser.add_argument(
        "--warmup-steps", type=int, default=0, help="with --exchange pipelined: updates that are synchronous first"
    )
    return parser.parse_args()


def rate_factor(step: int, steps: int) -> float:
    """Factor of the learning rate in step 0 to `steps` - 1: linear warm-up, then half a cosine to 0."""
    begin = max(1, round(BEGINNING * steps))
    rest = max(0.0, (step - begin) / max(1, steps - begin))
    return min(1.0, (step + 1) / begin) * 0.5 * (1.0 + math.cos(math.pi * rest))


def exchange(chosen: argparse.Namespace) -> str | Pipelined | None:
    """Argument `exchange` of Paceline's wrappers for the options `chosen`."""
    return Pipelined(warmup_steps=chosen.warmup_steps) if chosen.exchange == "pipelined" else chosen.exchange


def show(step: int, steps: int, loss: float) -> None:
    """Print one line about the training."""
    print(f"step {step}/{steps} loss {loss:.4f}", flush=True)


def conclude(framework: str, loss: float, accuracy: float, equal: bool) -> None:
    """Print the result for people and, in a line RESULT, for benchmarks/compare_exchanges.py.

    `equal`: True if all ranks hold the same weights.
    """
    print(f"{framework}: held-out loss {loss:.4f}, {accuracy:.2%} of the characters predicted", flush=True)
    result = {"framework": framework, "loss": loss, "accuracy": accuracy, "equal": equal}
    print("RESULT " + json.dumps(result), flush=True)
