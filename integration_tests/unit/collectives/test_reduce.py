"""hvd.reduce: which operation travels, and what its gradient is multiplied by."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paceline import config
from paceline.collectives.reduce import check

HOROVOD = SimpleNamespace(
    Average=0, Sum=1, Adasum=2, Min=3, Max=4, Product=5, is_initialized=lambda: True, rank=lambda: 4
)
SET = SimpleNamespace(ranks=[1, 4, 6], included=lambda: True)


def _check(root_rank: Any = 4, op: int = 0, process_set: Any = SET) -> Any:
    return check(HOROVOD, "loss", root_rank, op, 0.5, 6.0, process_set)


@pytest.mark.parametrize("collective", [None, "horovod", "linear", "auto"])
def test_the_root_counts_in_the_process_set(monkeypatch: pytest.MonkeyPatch, collective: str | None) -> None:
    monkeypatch.delenv("PACELINE_CODEC", raising=False)
    monkeypatch.delenv("PACELINE_COLLECTIVE", raising=False)
    if collective is not None:
        monkeypatch.setenv("PACELINE_COLLECTIVE", collective)
    config.begin()
    own = "\x7fpaceline." if collective in ("linear", "auto") else ""
    assert _check(4).operation(on_cpu=True) == f"{own}reduce.1.loss" and _check(4).at_root
    assert _check(6).operation(on_cpu=True) == f"{own}reduce.2.loss" and not _check(6).at_root
    assert _check(6).operation(on_cpu=False) == "reduce.2.loss"


def test_gradients_of_averages_and_sums() -> None:
    assert _check(op=HOROVOD.Average).gradient_scale() == 1.0
    assert _check(op=HOROVOD.Sum).gradient_scale() == 3.0
    for op in (HOROVOD.Min, HOROVOD.Max, HOROVOD.Product):
        with pytest.raises(ValueError, match="'loss' has no gradient"):
            _check(op=op).gradient_scale()


@pytest.mark.parametrize("root_rank", [0, 3, -1, True, "4", None])
def test_a_root_outside_the_set_is_refused(root_rank: Any) -> None:
    with pytest.raises(ValueError) as caught:
        _check(root_rank)
    problem, remedy = str(caught.value).split("\n")
    assert "'loss' on rank 4: expected root_rank among the ranks [1, 4, 6]" in problem
    assert problem.endswith(f"found {root_rank!r}.") and "hvd.rank()" in remedy


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"op=2\.\nUse one of hvd.Average, hvd.Sum"):
        _check(op=HOROVOD.Adasum)
    outside = SimpleNamespace(ranks=[1, 6], included=lambda: False)
    with pytest.raises(ValueError, match=r"rank 4 is no member of the process set \[1, 6\]"):
        _check(6, process_set=outside)
