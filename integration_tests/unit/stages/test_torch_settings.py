"""Arguments of hvd.Pipeline that cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.errors import UserError
from paceline.stages.execution.settings import Settings

GIVEN: dict[str, Any] = {
    **{"schedule": "pipemare", "n_microbatches": 4, "stages": "auto", "costs": None, "warmup_steps": 3},
    **{"annealing_steps": 5, "correction": 0.5, "max_norm": 1.0, "loss_reduction": "mean", "recompute": False},
    **{"nesterov": 0.9, "update_every": 2, "replicas": 1},
}


def test_what_is_asked_for_is_compared_as_it_was_given() -> None:
    assert Settings(**GIVEN).terms() == GIVEN
    assert Settings(**{**GIVEN, "stages": ("1", 3)}).terms()["stages"] == ["1", 3]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"schedule": "1f2b"}, "no schedule '1f2b'"),
        ({"warmup_steps": -1}, "warmup_steps=-1: expected a whole number"),
        ({"annealing_steps": 1.5}, "annealing_steps=1.5: expected a whole number"),
        ({"correction": 1.0}, "correction=1.0: expected a number between 0 and 1"),
        ({"nesterov": 1.0}, "nesterov=1.0: expected a number between 0 and 1"),
        ({"update_every": 0}, "update_every=0: expected a whole number"),
        ({"max_norm": 0.0}, "max_norm=0.0: expected a positive number"),
        ({"loss_reduction": "max"}, "loss_reduction='max' is not known"),
        ({"replicas": 0}, "replicas=0: expected a whole number"),
        ({"schedule": "gpipe"}, "warmup_steps=3 was given with schedule='gpipe', where no gradient is late"),
        ({"schedule": "1f1b", "warmup_steps": 0}, "annealing_steps=5 was given"),
        ({"schedule": "1f1b", "warmup_steps": 0, "annealing_steps": 0}, "correction=0.5 was given"),
        ({"schedule": "1f1b", "warmup_steps": 0, "annealing_steps": 0, "correction": None}, "nesterov=0.9 was given"),
    ],
)
def test_what_cannot_be(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Settings(**{**GIVEN, **changed})
