"""Batches of text whose lengths differ, so that some take much longer than others.

A piece of text is what stands between two blank lines of a source file: 16 to 256 characters here, 157 on average with
a standard deviation of 82. A batch has pieces of similar lengths, as is usual where lengths differ (it needs little
padding), so a step of one rank may take many times as long as that of another one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from paceline.examples import characters
from paceline.examples.characters import Array

SHORTEST, LONGEST = 16, 256  # characters; shorter pieces are left out, longer ones end there
NOTHING = -100  # a target behind the end of a piece, as PyTorch's losses know it

# Inputs (batch, length) and targets, the same one character later; int64.
Batch = tuple[Array, Array]


def training(rank: int, size: int, batch_size: int, seed: int) -> Iterator[Batch]:
    """Batches of this rank's share of the training text, in a random order that is new in each pass; without end."""
    batches = _batches(characters.training_text(rank, size), batch_size)
    chance = np.random.default_rng([seed, rank])
    while True:
        for number in chance.permutation(len(batches)):
            yield batches[number]


def held_out(batch_size: int) -> list[Batch]:
    """All batches of the text that no rank trains on."""
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
