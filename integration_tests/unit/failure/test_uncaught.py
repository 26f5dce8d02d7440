"""What a script that ends with an error writes to standard error."""

from __future__ import annotations

import io
import sys

import pytest

from paceline import uncaught


class _Pieces(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def write(self, text: str) -> int:
        self.pieces.append(text)
        return len(text)


def test_a_traceback_is_written_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that Horovod's threads write meanwhile would tear it apart."""
    pieces = _Pieces()
    monkeypatch.setattr(sys, "stderr", pieces)
    try:
        raise ValueError("layer 7 has no rows")
    except ValueError as error:
        uncaught._show(ValueError, error, error.__traceback__)
    (whole,) = pieces.pieces
    assert whole.startswith("Traceback (most recent call last):\n") and whole.endswith(
        "ValueError: layer 7 has no rows\n"
    )
