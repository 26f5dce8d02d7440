"""Batches of text of different lengths, so that some take much longer than others.

A piece of text is the part between two blank lines of a source file: 16 to 256 characters here, 157 on average with a
standard deviation of 82. A batch has pieces of similar lengths, as is usual for inputs of different lengths (it needs
little padding). So a step of one rank may take many times as long as a step of another.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from paceline.examples import characters
from paceline.examples.characters import Array

SHORTEST, LONGEST = 16, 256  # characters; shorter pieces are left out, longer ones are truncated
NOTHING = -100  # target after the end of a piece; ignored by PyTorch's losses

# Inputs (batch, length) and targets, shifted by one character; int64.
Batch = tuple[Array, Array]


def training(rank: int, size: int, batch_size: int, seed: int) -> Iterator[Batch]:
    """Yield batches of this rank's share of the training text without end, in a new random order in each pass."""
    batches = _batches(characters.training_text(rank, size), batch_size)
    chance = np.random.default_rng([seed, rank])
    while True:
        for number in chance.permutation(len(batches)):
            yield batches[number]


def held_out(batch_size: int) -> list[Batch]:
    """Return all batches of the text that no rank trains on."""
    return _batches(characters.held_out_text(), batch_size)


def _batches(text: Array, batch_size: int) -> list[Batch]:
    pieces = sorted(text.astype(np.uint8).tobytes().split(b"\n\n"), key=len)
    pieces = [piece[:LONGEST] for piece in pieces if len(piece) >= SHORTEST]
    return [_padded(pieces[first : first + batch_size]) for first in range(0, len(pieces), batch_size)]


def _padded(pieces: list[bytes]) -> Batch:
    whole = np.full((len(pieces), max(map(len, pieces))), NOTHING, np.int64)
    for row, piece in zip(whole, pieces):
        row[: len(piece)] = np.frombuffer(piece, np.uint8)
    return np.maximum(whole[:, :-1], 0), whole[:, 1:]
