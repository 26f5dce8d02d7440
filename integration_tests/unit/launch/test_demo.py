"""The demo's judgement on made-up outcomes, and where it runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.launch.demo import place, report
from paceline.launch.demo.running import Outcome
from paceline.launch.demo.systems import FRAMEWORKS, STOCK, STOCK_LATE, baseline

TORCH, KERAS = FRAMEWORKS
HOROVOD = Outcome(TORCH, STOCK, step_ms=50.0, compute_ms=20.0, accuracy=0.40, equal=True)
PIPELINED = replace(HOROVOD, system=next(one for one in TORCH.systems if one.label == "pipelined"), step_ms=25.0)


def test_a_fault_names_framework_and_run() -> None:
    assert report.faults([HOROVOD, PIPELINED, replace(HOROVOD, framework=KERAS, accuracy=0.98)]) == []
    [apart] = report.faults([HOROVOD, replace(PIPELINED, equal=False)])
    assert apart == "PyTorch, pipelined: the replicas on the ranks are not equal."
    [less] = report.faults([HOROVOD, replace(PIPELINED, accuracy=0.3)])
    assert less == "PyTorch: the accuracies of its runs differ by 10.0%, expected at most 5%."


def test_the_conclusion_names_the_fastest_run_and_the_next_command() -> None:
    said = report.conclusion([HOROVOD, PIPELINED], slow=True)
    assert said[0] == (
        "PyTorch: a step with stock Horovod takes 50 ms and waits 30 of them; pipelined, it takes 25 ms."
    )
    assert "paceline record -np 2 python train.py" in said[-1]


def test_runs_with_a_late_rank_are_compared_with_horovod_and_a_late_rank() -> None:
    late = [one for one in TORCH.systems if one.late_ms]
    assert len(late) == 2 and {baseline(one) for one in late} == {STOCK_LATE}
    assert {baseline(one) for one in TORCH.systems if not one.late_ms} == {STOCK}


def test_the_loopback_is_slowed_where_the_kernel_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = place.best_place()
    assert found.slow is bool(found.enter)
    tried: list[tuple[str, ...]] = []

    def refuse_users(enter: tuple[str, ...]) -> bool:
        tried.append(enter)
        return "--user" not in enter

    monkeypatch.setattr(place, "_works", refuse_users)
    assert place.best_place().enter == tried[1] and "tbf rate 400000000bit" in " ".join(tried[1])
    monkeypatch.setattr(place, "_works", lambda enter: False)
    plain = place.best_place()
    assert not plain.slow and not plain.enter and "cannot make a network namespace" in plain.description
