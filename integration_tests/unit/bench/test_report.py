"""From turns to ratios, JSON and tables, on turns whose figures are made up."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence

import pytest
from rich.console import Console

from paceline.examples.benchmarks.harness import report
from paceline.examples.benchmarks.harness.assignment import Measured
from paceline.examples.benchmarks.harness.balance import Balance
from paceline.examples.benchmarks.harness.hosts import Traffic
from paceline.examples.benchmarks.harness.merging import Merging, Plan
from paceline.examples.benchmarks.harness.ratios import Ratio, over
from paceline.examples.benchmarks.harness.table import as_table
from paceline.examples.benchmarks.harness.team_run import TeamRun
from paceline.examples.benchmarks.harness.turns import Comparison, steps_per_turn
from paceline.examples.benchmarks.networks.models import find

STEPS = 4


def merging(predicted_ms: float, version: int = 1) -> Merging:
    """A plan of two messages that promises a step of this time."""
    plan = Plan(version, version - 1, (400, 3000), 2e-3, 8e-9, 3e-3, predicted_ms / 1e3, 1e-3, 11e-3)
    return Merging("optimal", "active", "", plan)


def run(
    step_ms: Sequence[float],
    wire: int | None = None,
    messages: int | None = None,
    plan: Merging | None = None,
) -> TeamRun:
    """One turn in which rank r took step_ms[r] per step."""
    counters = None if messages is None else {"coordination_rounds": 0, "messages": messages * STEPS, "bytes": 80}
    ranks = [Measured(STEPS * ms / 1e3, STEPS * ms / 4e3, 3 * STEPS, counters, plan) for ms in step_ms]
    return TeamRun(STEPS, ranks, None if wire is None else [Traffic(wire, wire + 1), Traffic(wire + 2, wire + 3)])


def comparison(slow_down: Sequence[float] = (1, 3, 1, 2, 1)) -> Comparison:
    """Turns that the machine slows down by these factors; DDP always takes four fifths of Horovod's time."""
    return Comparison(
        find("mini"),
        2,
        {
            "horovod": [run([10 * by, 10 * by], wire=500, messages=3) for by in slow_down],
            "ddp": [run([7 * by, 9 * by], wire=400) for by in slow_down],
            "alone": [run([5 * by, 5 * by], wire=0) for by in slow_down],
        },
    )


def test_a_ratio_is_formed_within_turns_so_a_slow_machine_cancels() -> None:
    ratio = comparison().value(over("ddp", "horovod"))
    assert (ratio.median, ratio.low, ratio.high) == pytest.approx((0.8, 0.8, 0.8))
    assert comparison().settled


def test_a_ratio_over_several_systems_takes_the_slowest_of_each_turn() -> None:
    runs = {
        "whole": [run([12, 12]), run([12, 12]), run([15, 15])],
        "compute": [run([10, 10]), run([4, 4]), run([10, 10])],
        "communication": [run([6, 6]), run([8, 8]), run([3, 3])],
    }
    ratio = Comparison(find("mini"), 2, runs).value(Ratio("", "whole", ("compute", "communication")))
    assert (ratio.median, ratio.low, ratio.high, ratio.count) == pytest.approx((1.5, 1.2, 1.5, 3))


def test_measuring_goes_on_while_there_are_few_turns_or_the_ratio_is_wide() -> None:
    assert not comparison([1, 1, 1, 1]).settled
    wide = comparison([1] * 6)
    wide.runs["ddp"][:3] = [run([12, 12])] * 3
    assert wide.value(over("ddp", "horovod")).wide and not wide.settled


def test_without_a_second_system_the_step_times_decide() -> None:
    only = Comparison(find("mini"), 2, {"horovod": comparison([1] * 5).runs["horovod"]})
    assert only.ratios == [] and only.settled
    only.runs["horovod"] = comparison([1, 9, 1, 9, 1, 9]).runs["horovod"]
    assert not only.settled


def test_every_system_is_compared_with_the_first_that_communicates() -> None:
    runs = comparison().runs
    order = Comparison(
        find("mini"), 2, {"alone": runs["alone"], "horovod": runs["horovod"], "ddp": runs["ddp"], "x": runs["ddp"]}
    )
    assert [ratio.name for ratio in order.ratios] == ["ddp_over_horovod", "x_over_horovod"]


def test_json_has_one_figure_per_step_and_none_for_what_nobody_counts() -> None:
    result = json.loads(json.dumps(report.as_json(comparison(), 2, "1gbit", report.machine(), "the command")))
    assert {key: result[key] for key in ("model", "tensors", "hosts", "ranks", "rate", "command")} == {
        "model": "mini", "tensors": 7, "hosts": 2, "ranks": 2, "rate": "1gbit", "command": "the command",
    }  # fmt: skip
    horovod, ddp = result["systems"]["horovod"], result["systems"]["ddp"]
    assert horovod["step_ms"] == {"median": 10.0, "low": 10.0, "high": 30.0}
    assert (horovod["turns"], horovod["steps"]) == (5, 5 * STEPS)
    assert (horovod["cpu_ms_per_step"], horovod["wakeups_per_step"]) == (2.5, 3.0)
    assert (horovod["messages_per_step"], horovod["bytes_per_step"]) == (3.0, 20.0)
    assert horovod["coordination_rounds_per_step"] == 0.0
    assert horovod["wire_bytes_per_step"] == {"sent": [500, 502], "received": [501, 503]}
    assert ddp["messages_per_step"] is None
    assert result["ratios"] == {"ddp_over_horovod": {"median": 0.8, "low": 0.8, "high": 0.8, "turns": 5, "wide": False}}
    assert result["machine"]["cores"] >= 1 and result["machine"]["versions"]["torch"]


def merged() -> Comparison:
    """Five turns of stock Horovod, DDP and the optimal plan, which takes 8 ms and was made anew after two turns."""
    return Comparison(
        find("mini"),
        2,
        {
            "stock": [run([10, 10])] * 5,
            "ddp": [run([16, 16])] * 5,
            "optimal": [run([8, 8], messages=2, plan=merging(7.2, 1))] * 2
            + [run([8, 8], messages=2, plan=merging(8.8, 2))] * 3,
        },
        [over("optimal", "stock"), over("optimal", "ddp")],
    )


def test_json_of_merging_has_the_plan_and_how_well_it_foretold_the_step() -> None:
    result = json.loads(json.dumps(report.as_json(merged(), 2, "1gbit", {}, "")))
    assert list(result["ratios"]) == ["optimal_over_stock", "optimal_over_ddp", "predicted_over_measured"]
    assert result["ratios"]["optimal_over_stock"]["median"] == 0.8
    assert result["ratios"]["optimal_over_ddp"]["median"] == 0.5
    foretold = {"median": 1.1, "low": 0.9, "high": 1.1, "turns": 5, "wide": True}
    assert result["ratios"]["predicted_over_measured"] == foretold
    assert result["plans"] == {
        "optimal": {
            "groups": 2,
            "group_bytes": [400, 3000],
            "a_ms": 2.0,
            "b_ms_per_mb": 8.0,
            "coordination_ms": 3.0,
            "predicted_step_ms": 8.8,
            "predicted_exposed_ms": 1.0,
            "predicted_stock_step_ms": 11.0,
            "predicted_over_measured": foretold,
            "versions": 2,
            "timeouts": 1,
        }
    }


def test_table_of_merging_tells_the_plan() -> None:
    text = io.StringIO()
    Console(file=text, width=160).print(as_table(report.as_json(merged(), 2, "1gbit", {}, "")))
    told = " ".join(text.getvalue().split())  # lines are broken anywhere
    assert "optimal: 2 messages planned at 2.00 ms + 8.00 ms/MB each and 3.00 ms of coordination" in told
    assert "step predicted 8.8 ms (1.0 ms exposed), stock 11.0 ms, planned anew once, 1 message went incomplete" in told
    assert "predicted / measured: 1.100" in told


def test_a_plan_that_foretells_nothing_is_told_without_a_forecast() -> None:
    silent = Plan(1, 0, (400, 3000), 2e-3, 8e-9, 3e-3, None, None, None)
    runs = [run([8, 8], messages=2, plan=Merging("optimal", "active", "", silent))] * 5
    merged_later = Comparison(find("mini"), 2, {"stock": [run([10, 10])] * 5, "later": runs})
    result = json.loads(json.dumps(report.as_json(merged_later, 2, None, {}, "")))
    assert list(result["ratios"]) == ["later_over_stock"]
    for figure in ("step_ms", "exposed_ms", "stock_step_ms", "over_measured"):
        assert result["plans"]["later"][f"predicted_{figure}"] is None
    text = io.StringIO()
    Console(file=text, width=160).print(as_table(result))
    assert "3.00 ms of coordination" in text.getvalue() and "predicted" not in text.getvalue()


def test_a_rate_that_was_chosen_is_explained() -> None:
    chosen = Balance(0.5, 0.006, 93_750)
    result = json.loads(json.dumps(report.as_json(comparison(), 2, chosen.rate, {}, "", chosen)))
    assert result["rate"] == "250mbit"
    assert result["balance"] == {
        "communication_share": 0.5, "compute_ms": 6.0, "link_bytes_per_step": 93_750, "clean": False,
    }  # fmt: skip
    text = io.StringIO()
    Console(file=text, width=160).print(as_table(result))
    told = " ".join(text.getvalue().split())
    assert "250mbit were chosen so that 0.09 MB a step and link take 0.5 x the 6.0 ms of compute; more than" in told


def test_a_network_that_computes_has_no_times_of_its_own() -> None:
    real = Comparison(find("resnet20-real"), 2, {"horovod": [run([10, 10])] * 5})
    result = report.as_json(real, 1, None, {}, "")
    assert result["forward_ms"] is None and result["backward_ms"] is None
    text = io.StringIO()
    Console(file=text, width=160).print(as_table(result))
    assert "65 tensors, 0.27 M parameters, computed on the processor" in " ".join(text.getvalue().split())


def test_without_merging_there_are_no_plans() -> None:
    assert "plans" not in report.as_json(comparison(), 2, "1gbit", {}, "")


def test_on_loopback_there_is_no_wire() -> None:
    loopback = Comparison(find("mini"), 2, {"horovod": [run([10, 10])] * 5})
    result = report.as_json(loopback, 1, None, {}, "")
    assert result["systems"]["horovod"]["wire_bytes_per_step"] is None


@pytest.mark.parametrize(("slow_ddp", "said"), [(False, "0.800 .. 0.800 (5 turns)"), (True, "wide: measure longer")])
def test_the_table_shows_figures_and_says_when_the_interval_is_wide(slow_ddp: bool, said: str) -> None:
    shown = comparison()
    if slow_ddp:
        shown.runs["ddp"][:2] = [run([90, 90], wire=400)] * 2
    text = io.StringIO()
    result = report.as_json(shown, 2, "1gbit", {}, "", latency="2ms")
    Console(file=text, width=140).print(as_table(result))
    assert said in text.getvalue()
    assert (
        "mini: 2 ranks on 2 hosts, 1gbit, 2ms one way; 7 tensors, 0.01 M parameters, 2 + 4 ms compute"
        in text.getvalue()
    )
    assert "10.0 .. 30.0" in text.getvalue()


def test_a_turn_is_long_enough_to_measure_and_never_endless() -> None:
    assert [steps_per_turn(step_s) for step_s in (0.001, 0.1, 0.5, 7.0)] == [40, 15, 3, 3]
