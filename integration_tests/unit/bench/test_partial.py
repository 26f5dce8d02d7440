"""The model of skewed arrivals, the way from samples to figures, and what Benchmark partial refuses."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from paceline.errors import UserError
from paceline.examples.benchmarks.commands import command as bench
from paceline.examples.benchmarks.commands import partial as bench_partial
from paceline.examples.benchmarks.harness import skew_model, skew_report, uneven_report, uneven_training
from paceline.examples.benchmarks.harness.partial_table import as_table
from paceline.examples.benchmarks.harness.skew import SKEWED, Samples, SkewPlan

PLAN = SkewPlan(8, 2.0, 4, (64,), 1.0, flush_each=False, limit_s=10.0)
ABOUT = {"cores": 2}


@pytest.mark.parametrize(
    ("system", "wait", "fresh"),
    [("sync", 3.5, 8), ("random", 1.3125, 4.5), ("majority", 0.75, 4), ("solo", 0, 1)],
)
def test_the_closed_forms_for_eight_ranks(system: str, wait: float, fresh: float) -> None:
    assert skew_model.expected_wait(system, 8) == pytest.approx(wait)
    assert skew_model.expected_fresh(system, 8) == pytest.approx(fresh)


@pytest.mark.parametrize("ranks", [2, 3, 7, 8, 32])
def test_the_closed_forms_are_what_every_rank_waits(ranks: int) -> None:
    def waits(trigger: int) -> float:
        return sum(max(0, trigger - rank) for rank in range(ranks)) / ranks

    assert skew_model.expected_wait("sync", ranks) == pytest.approx(waits(ranks - 1))
    assert skew_model.expected_wait("sync", ranks) == pytest.approx((ranks - 1) / 2)
    drawn = sum(map(waits, range(ranks))) / ranks
    assert skew_model.expected_wait("random", ranks) == pytest.approx(drawn)
    assert skew_model.expected_wait("random", ranks) == pytest.approx((ranks**2 - 1) / (6 * ranks))
    half = -(-ranks // 2)
    assert skew_model.expected_wait("majority", ranks) == pytest.approx(waits(half - 1))
    assert skew_model.expected_wait("solo", ranks) == waits(0) == 0


def test_a_late_rank_saves_the_transfer() -> None:
    # Of 4 ranks 2 come in time and wait 1 and 0 skews; the others take the result without the transfer of 0.4 skews.
    assert skew_model.with_transfer([2], 4, 0.4) == pytest.approx(1 / 4 - 0.4 / 2)
    assert skew_model.with_transfer([4, 4], 4, 0.4) == pytest.approx(1.5)


def samples(plan: SkewPlan, transfer_ms: float = 0.3, drawn: Sequence[int] = (1, 4, 6, 8)) -> Samples:
    """What a machine that does what the model says would measure; `drawn`: contributions in time, random initiator."""
    counts = {"sync": [8] * 4, "random": drawn, "majority": [4] * 4, "solo": [1] * 4}
    made = np.zeros((plan.ranks, plan.iterations, len(skew_model.SYSTEMS), 2, 3))
    made[..., 1] = 1e-4
    for system, name in enumerate(skew_model.SYSTEMS):
        made[:, :, system, 1 - SKEWED] = (transfer_ms / 1e3, 1e-4, plan.ranks)
        for iteration, count in enumerate(counts[name]):
            for rank in range(plan.ranks):
                latency_ms = (count - 1 - rank) * plan.skew_ms + transfer_ms if rank < count else 0.0
                made[rank, iteration, system, SKEWED] = (latency_ms / 1e3, 1e-4, count)
    return made


def test_samples_of_an_ideal_machine_give_the_model() -> None:
    result = skew_report.as_json(PLAN, 64, samples(PLAN), ABOUT, "the command")
    systems = result["systems"]
    assert list(systems) == ["sync", "random", "majority", "solo"]
    assert systems["sync"]["latency_ms"] == {
        "even": {"mean": 0.3, "sd": 0.0},
        "skewed": {"mean": pytest.approx(7.3), "sd": 0.0},
    }
    assert systems["sync"]["wait_over_skew"] == {"mean": 3.5, "error": 0.0, "model": 3.5, "model_at_fresh": 3.5}
    for name, system in systems.items():
        wait = system["wait_over_skew"]
        assert wait["mean"] == pytest.approx(wait["model_at_fresh"], abs=1e-3), name
    assert systems["majority"]["wait_over_skew"]["mean"] == pytest.approx(0.75 - 0.15 / 2)
    assert systems["random"]["fresh"] == {"mean": 4.75, "sd": pytest.approx(2.986, abs=1e-3), "model": 4.5}
    assert systems["random"]["wait_over_skew"]["error"] > 0
    # 7 / 8 of the ranks come too late for a solo round and take no time at all.
    assert result["solo_over_sync"] == pytest.approx(0.3 / 8 / 7.3, abs=1e-4)
    assert result["majority_over_sync"] == pytest.approx((0.75 * 2 + 0.3 / 2) / 7.3, abs=1e-4)
    assert result["lateness_ms"] == {"mean": 0.1, "max": 0.1}
    assert (result["part"], result["machine"], result["command"]) == ("micro", ABOUT, "the command")
    json.dumps(result)


def test_one_iteration_is_enough_for_figures() -> None:
    result = skew_report.as_json(PLAN, 64, samples(PLAN)[:, :1], ABOUT, "")
    assert result["iterations"] == 1 and result["systems"]["random"]["wait_over_skew"]["error"] == 0


def test_ranks_that_were_answered_with_different_rounds_are_an_error() -> None:
    made = samples(PLAN)
    made[3, 2, skew_model.SYSTEMS.index("solo"), SKEWED, 2] += 1
    with pytest.raises(ValueError, match="solo: ranks were answered with different rounds"):
        skew_report.as_json(PLAN, 64, made, ABOUT, "")


def row(case: str, system: str, steps_per_s: float, over_sync: float) -> dict[str, Any]:
    return {
        "case": case,
        "system": system,
        "steps_per_s": {"mean": steps_per_s, "sd": 0.1},
        "accuracy": {"mean": 0.96, "sd": 0.01},
        "loss": {"mean": 0.2, "sd": 0.02},
        "apart": {"mean": 0.0125, "sd": 0.002},
        "seeds": 3,
        "over_sync": over_sync,
    }


ROWS = [
    row("random", "sync", 2.0, 1.0),
    row("random", "solo", 4.0, 2.0),
    row("lengths", "sync", 1.0, 1.0),
    row("lengths", "majority", 1.6, 1.6),
]


def test_training_has_a_result_for_each_case_with_ratios_of_times() -> None:
    random, lengths = uneven_report.as_json(ROWS, 8, ABOUT, "the command")
    assert random["solo_over_sync"] == 0.5 and "majority_over_sync" not in random
    assert lengths["majority_over_sync"] == 0.625
    assert random["systems"]["solo"]["accuracy"] == {"mean": 0.96, "sd": 0.01}
    assert (random["part"], random["case"], random["ranks"], random["command"]) == (
        "training",
        "random",
        8,
        "the command",
    )


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (
            lambda: skew_report.as_json(PLAN, 64, samples(PLAN), ABOUT, ""),
            ["7.30", "3.50", "1.31", "0.01"],
        ),
        (
            lambda: next(uneven_report.as_json(ROWS, 8, ABOUT, "")),
            ["4.00 (sd 0.10)", "0.9600", "0.0125", "0.50"],
        ),
    ],
)
def test_tables_show_the_figures(result: Callable[[], dict[str, Any]], shown: list[str]) -> None:
    output = io.StringIO()
    Console(file=output, width=140).print(as_table(result()))
    for text in shown:
        assert text in output.getvalue()


def test_a_plan_travels_to_the_ranks() -> None:
    assert SkewPlan.from_json(PLAN.to_json()) == PLAN


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ranks", "1"], "--ranks 1 cannot be used"),
        (["--ranks", "65"], "--ranks 65 cannot be used"),
        (["--skew-ms", "0"], "--skew-ms 0 cannot be used"),
        (["--skew-ms", "nan"], "--skew-ms nan cannot be used"),
        (["--cycle-ms", "-1"], "--cycle-ms -1 cannot be used"),
        (["--iterations", "0"], "--iterations 0 cannot be used"),
        (["--size", "6"], "--size 6 cannot be used"),
        (["--size", "0"], "--size 0 cannot be used"),
        (["--seeds", "0"], "--seeds 0 cannot be used"),
        (["--time-limit-s", "inf"], "--time-limit-s inf cannot be used"),
    ],
)
def test_bad_input_is_named(arguments: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        CliRunner().invoke(bench.bench_command, ["partial", *arguments], catch_exceptions=False)


@pytest.mark.parametrize(("option", "value"), [("--part", "macro"), ("--case", "rotated")])
def test_unknown_parts_and_cases_are_refused(option: str, value: str) -> None:
    done = CliRunner().invoke(bench.bench_command, ["partial", option, value])
    assert done.exit_code == 2 and value in done.output


def test_the_command_that_is_told_repeats_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bench_partial.PartialRequest] = []

    def micro(request: bench_partial.PartialRequest, tell: Callable[[str], None]) -> Any:
        asked.append(request)
        yield {"command": request.command}

    monkeypatch.setattr(bench_partial, "_micro", micro)
    arguments = ["--ranks", "3", "--part", "micro", "--size", "64", "--size", "512", "--size", "64", "--flush-each"]
    for _ in range(2):
        done = CliRunner().invoke(bench.bench_command, ["partial", *arguments, "--json"], catch_exceptions=False)
        told = json.loads(done.stdout)["command"]
        arguments = told.removeprefix("python -m examples.benchmarks partial ").split()
    assert asked[0] == asked[1] and asked[0].sizes_bytes == (64, 512) and asked[0].flush_each
    assert told == (
        "python -m examples.benchmarks "
        "partial --ranks 3 --part micro --skew-ms 1 --cycle-ms 1 --iterations 64 --flush-each"
        " --size 64 --size 512 --time-limit-s 600"
    )


def test_training_is_asked_for_what_the_options_say(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def compare(ranks: int, seeds: Sequence[int], *others: Any) -> list[dict[str, Any]]:
        asked.append((ranks, list(seeds), *others[:2], others[-1]))
        return ROWS

    monkeypatch.setattr(uneven_training, "compare", compare)
    words = ["partial", "--part", "training", "--ranks", "4", "--seeds", "2", "--case", "random", "--time-limit-s", "9"]
    done = CliRunner().invoke(bench.bench_command, [*words, "--json"], catch_exceptions=False)
    assert asked == [(4, [0, 1], ("random",), ("sync", "majority", "solo"), 9.0)]
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["case"], second["case"]) == ("random", "lengths")
    assert first["command"] == (
        "python -m examples.benchmarks partial --ranks 4 --part training --seeds 2 --case random --time-limit-s 9"
    )
