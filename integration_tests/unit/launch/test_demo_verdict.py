"""What the demo finds fault with, on outcomes that are made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.launch import demo
from paceline.launch.demo import Outcome

STOCK = Outcome("PyTorch 2", "stock", 9.0, 0.4, 3.0, 0.98, True, "off", "")
OPTIMAL = replace(STOCK, run="optimal", messages=2.0, state="active")


def test_good_outcomes_have_no_faults() -> None:
    assert STOCK.faults() == OPTIMAL.faults() == []
    assert demo.disagreement([STOCK, OPTIMAL]) == []
    lost = replace(OPTIMAL, state="stock", trial="tried: no difference; Horovod's own merging stays")
    assert lost.faults() == []
    assert lost.verdict == "PyTorch 2, optimal: tried: no difference; Horovod's own merging stays."
    assert STOCK.verdict == ""


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (replace(STOCK, accuracy=0.95), "PyTorch 2, stock: accuracy 95.00% does not exceed 95%."),
        (replace(OPTIMAL, equal=False), "PyTorch 2, optimal: the replicas on the ranks are not equal."),
        (replace(OPTIMAL, state="warming"), "PyTorch 2, optimal: merging is warming, expected a plan"),
        (replace(OPTIMAL, state="refused", reason="autotune is on"), "merging is refused (autotune is on), expected"),
    ],
)
def test_a_fault_names_framework_and_run(outcome: Outcome, said: str) -> None:
    [fault] = outcome.faults()
    assert said in fault


def test_runs_of_one_framework_must_agree_in_accuracy() -> None:
    others = [replace(STOCK, framework="Keras 3", accuracy=0.955), replace(OPTIMAL, framework="Keras 3", accuracy=0.96)]
    assert demo.disagreement([STOCK, OPTIMAL, *others]) == []
    [said] = demo.disagreement([STOCK, replace(OPTIMAL, accuracy=0.955), *others])
    assert said == "PyTorch 2: the accuracies of its runs differ by 2.50%, expected at most 2%."
