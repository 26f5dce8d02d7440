"""How gradients are put into explicit groups, and how operations are named."""

from __future__ import annotations

import pytest

from paceline.errors import UserError
from paceline.keras3.settings import Settings, split


def _identity(variable: str) -> str:
    return variable


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (None, [[0], [1], [2], [3], [4]]),
        (1, [[0, 1, 2, 3, 4]]),
        (2, [[0, 1, 2], [3, 4]]),
        (3, [[0, 1], [2, 3], [4]]),
        (9, [[0], [1], [2], [3], [4]]),
        ([["d", "a"]], [[3, 0], [1], [2], [4]]),
        # A variable without a gradient is not there; one that is named twice travels once.
        ([["x"], ["e", "x", "e"], ["e"]], [[4], [0], [1], [2], [3]]),
    ],
)
def test_split(groups: int | list[list[str]] | None, expected: list[list[int]]) -> None:
    assert split(groups, list("abcde"), _identity) == expected
    assert split(3, [], _identity) == []


def _settings(**choices: object) -> Settings:
    common = {"name": "Adam of/mine", "op": 0, "average": 0, "process_set": None, "compression": None}
    return Settings(**{**common, **choices})  # type: ignore[arg-type]


def test_names_are_those_of_optimizer_and_place_and_predivision_splits_the_average() -> None:
    assert _settings().operation("HorovodAllreduce", 7) == "HorovodAllreduce_Adam_of_mine_7"
    chosen = _settings(gradient_predivide_factor=4.0)
    assert (chosen.prescale, chosen.postscale) == (0.25, 4.0)
    with pytest.raises(UserError, match="needs op=Average"):
        _settings(gradient_predivide_factor=4.0, op=1)
