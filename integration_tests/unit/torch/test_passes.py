"""Counting backward passes and step() calls: which call makes the update."""

from __future__ import annotations

import pytest

from paceline.torch.optimizer.passes import Passes


def _run(per_update: int, events: str) -> str:
    """Play b (a backward pass) and s (a call of step); the answer marks each s that updated as U, others as '-'."""
    passes, gradients, marks = Passes(per_update), 0, ""
    for event in events.replace(" ", ""):
        if event == "b":
            gradients += 1
            passes.saw_gradient(gradients)
        elif passes.count_call():
            passes.updated()
            gradients = 0
            marks += "U"
        else:
            marks += "-"
    return marks


@pytest.mark.parametrize(
    ("per_update", "events", "marks"),
    [
        (1, "bs bs bs", "UUU"),
        (1, "s s", "UU"),  # a rank without gradients takes part in every update
        # step() after every backward pass
        (3, "bs bs bs bs bs bs", "--U--U"),
        (3, "bs s bs bs", "--U-"),  # a pass without gradients on this rank counts
        # the caller counts, and calls step() once
        (3, "bbbs bbbs", "UU"),
        (3, "bbbs bbs bbbs", "UUU"),  # the rest of an epoch
        (3, "bbbs bs bs bs bs", "UU--U"),  # ... but only one: then step() is called after every pass
        (2, "bbs bs bbs bs", "UUUU"),
        (4, "bbs bbs", "-U"),  # two passes for each step(): passes are what counts
    ],
)
def test_calls_that_update(per_update: int, events: str, marks: str) -> None:
    assert _run(per_update, events) == marks


def test_gradients_are_kept_only_within_an_accumulation() -> None:
    passes = Passes(2)
    assert not passes.accumulating()
    passes.saw_gradient(1)
    assert passes.accumulating()
    passes.saw_gradient(2)
    assert not passes.accumulating()
    passes.restart()
    assert not passes.accumulating()
    alone = Passes(1)
    alone.saw_gradient(1)
    assert not alone.accumulating()
