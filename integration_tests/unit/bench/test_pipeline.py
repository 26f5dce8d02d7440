"""From measured stages to figures, tables and refusals of `python -m examples.benchmarks pipeline`."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
import torch
from click.testing import CliRunner
from rich.console import Console

from paceline.errors import UserError
from paceline.examples.benchmarks.commands import command as bench
from paceline.examples.benchmarks.commands import pipeline as bench_pipeline
from paceline.examples.benchmarks.stages import models, report, systems, table, turns
from paceline.examples.benchmarks.stages.cases import BLOCKS, MODELS, SLEEPING, Case, Trained
from paceline.examples.benchmarks.stages.timed import Recorder, Timed, overlap_s
from paceline.examples.benchmarks.stages.turns import Comparison
from paceline.examples.benchmarks.stages.worlds import StagesRun

CASE = Case(SLEEPING, 4, 4, 0.02, 0.02)


def trained(step_s: float, copies: int = 1, held: int = 1, steps: int = 10) -> Trained:
    """A stage whose four micro-batches of a step take 0.16 s of `step_s`."""
    return Trained(4 * steps, step_s * steps, 0.16 * steps, 0.02, 0.02, 0.008 * steps, copies, held, 2.5)


def run(step_s: float, copies: tuple[int, ...] = (1, 1, 1, 1)) -> StagesRun:
    return StagesRun([trained(step_s, count, 4 - stage) for stage, count in enumerate(copies)])


def compared() -> Comparison:
    comparison = Comparison(CASE, list(systems.SYSTEMS.values()))
    comparison.runs = {
        "gpipe": [run(0.28)] * 5,
        "1f1b": [run(0.32)] * 5,
        "pipedream": [run(0.16, (2, 2, 2, 1))] * 5,
        "2bw": [run(0.16, (2, 2, 2, 2))] * 5,
        "pipemare": [run(0.16)] * 5,
        "pipemare_eager": [run(0.14)] * 5,
        "torch_gpipe": [run(0.35)] * 5,
        "torch_1f1b": [run(0.32)] * 5,
    }
    return comparison


def test_figures_and_ratios() -> None:
    found = report.as_json(compared(), {"cores": 2}, "the command")
    gpipe, pipemare = found["systems"]["gpipe"], found["systems"]["pipemare"]
    assert pipemare["throughput"]["median"] == pytest.approx(25) and pipemare["utilisation"]["median"] == 1
    assert gpipe["utilisation"]["median"] == pytest.approx(4 / 7, abs=1e-3) == gpipe["utilisation_model"]
    assert gpipe["bound_share"] == pytest.approx(4 / 7, abs=1e-3) and pipemare["utilisation_per_stage"] == [1] * 4
    assert (gpipe["passes_ms"], gpipe["cpu_ms_per_microbatch"], gpipe["microbatches"]) == (40, 2, 200)
    pipedream = found["systems"]["pipedream"]
    assert pipedream["weight_copies"] == pipedream["weight_copies_model"] == [2, 2, 2, 1]
    assert pipedream["activations"] == pipedream["activations_model"] == [4, 3, 2, 1]
    ratios = found["ratios"]
    assert ratios["pipemare_over_gpipe"]["median"] == 1.75 and ratios["pipemare_over_1f1b"]["median"] == 2
    assert ratios["pipemare_eager_over_gpipe"]["median"] == 2
    assert found["systems"]["pipemare_eager"]["activations_model"] == [7, 5, 3, 1]
    assert ratios["ours_over_torch"]["gpipe"]["median"] == 1.25 and ratios["ours_over_torch"]["1f1b"]["median"] == 1
    assert ratios["pipedream_over_pipemare"] == 1.75
    json.dumps(found)


def test_stages_that_compute_have_no_bound_and_what_is_not_measured_no_ratio() -> None:
    comparison = compared()
    comparison.case = replace(CASE, model=BLOCKS)
    comparison.systems = [systems.find("gpipe")]
    comparison.runs = {"gpipe": comparison.runs["gpipe"]}
    found = report.as_json(comparison, {}, "")
    assert found["systems"]["gpipe"]["bound_share"] is None and found["forward_ms"] is None and found["ratios"] == {}


def test_a_table_has_a_row_for_each_system_and_says_what_is_left_out() -> None:
    comparison = compared()
    comparison.skipped = {"torch_1f1b": "it cannot"}
    out = io.StringIO()
    Console(file=out, width=200).print(table.as_table(report.as_json(comparison, {}, "")))
    printed = out.getvalue()
    assert "sleeping: 4 stages, 4 micro-batches, 20 + 20 ms" in printed and "2 2 2 1" in printed
    assert (
        "1.750" in printed and "pipemare over 1f1b: 2.000" in printed and "torch_1f1b is left out: it cannot" in printed
    )


def test_turns_end_when_ratios_are_known() -> None:
    assert compared().settled
    comparison = compared()
    comparison.runs["pipemare"] = [run(0.16 + turn) for turn in range(5)]
    assert not comparison.settled
    comparison.runs = {name: runs[:4] for name, runs in compared().runs.items()}
    assert not comparison.settled
    assert turns.steps_per_turn(0.2) == 10 and turns.steps_per_turn(1e-6) == turns.MOST_STEPS
    assert turns.steps_per_turn(60) == turns.FEWEST_STEPS


def test_pytorchs_1f1b_takes_as_many_microbatches_as_stages() -> None:
    assert "4 micro-batches or more" in systems.find("torch_1f1b").refusal(4, 3)
    assert not systems.find("torch_1f1b").refusal(4, 4) and not systems.find("1f1b").refusal(4, 1)


def test_time_within_a_window() -> None:
    assert overlap_s([(0.0, 2.0), (3.0, 4.0), (5.0, 9.0)], 1.0, 6.0) == pytest.approx(3.0)
    assert overlap_s([(0.0, 1.0)], 2.0, 3.0) == 0


@pytest.mark.parametrize("first", [True, False])
def test_a_recorder_knows_both_passes_and_what_is_between_them(first: bool) -> None:
    recorder = Recorder()
    module = Timed(models.Sleeping(3, 0.001, 0.002), recorder)
    inputs = [torch.ones(2, 3, requires_grad=not first) for _ in range(3)]
    outputs = [module(one) for one in inputs]
    assert recorder.most_held == 3 and all(end - begin >= 0.001 for begin, end in recorder.forwards)
    for output in outputs:
        output.sum().backward()
    assert len(recorder.backwards) == 3 and all(end - begin >= 0.002 for begin, end in recorder.backwards)
    assert first or all(one.grad is not None for one in inputs)
    recorder.begin()
    assert (recorder.most_held, recorder.forwards, recorder.backwards) == (0, [], [])
    module(inputs[0])
    recorder.begin()
    assert recorder.most_held == 1  # its backward pass is still to come
    recorder.clear()
    assert recorder.most_held == 0


@pytest.mark.parametrize("model", MODELS)
def test_every_rank_makes_the_same_stages_whatever_it_drew_before(model: str) -> None:
    case = replace(CASE, model=model)
    first = models.stages_of(case, Recorder())
    torch.rand(1)
    before = torch.get_rng_state()
    second = models.stages_of(case, Recorder())
    assert torch.equal(before, torch.get_rng_state()) and len(first) == case.stages
    for one, other in zip(first, second, strict=True):
        assert all(map(torch.equal, one.parameters(), other.parameters()))
    batch, target = models.batch_of(case)
    assert batch.shape[0] == target.shape[0] == 4 * models.ROWS


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--stages", "1"], "--stages 1"),
        (["--microbatches", "4,x"], "--microbatches 4,x"),
        (["--microbatches", "0"], "--microbatches 0"),
        (["--microbatches", ","], "--microbatches ,"),
        (["--systems", "gpip"], "Did you mean gpipe?"),
        (["--models", "sleepin"], "Did you mean sleeping?"),
        (["--forward-ms", "0"], "--forward-ms 0"),
        (["--backward-ms", "nan"], "--backward-ms nan"),
        (["--time-limit-s", "nan"], "--time-limit-s nan"),
        (["--turns", "0"], "--turns 0"),
    ],
)
def test_bad_input_is_named(words: list[str], said: str) -> None:
    done = CliRunner().invoke(bench.bench_command, ["pipeline", *words])
    assert isinstance(done.exception, UserError) and said in f"{done.exception.problem} {done.exception.remedy}"


def test_a_request_says_how_to_ask_for_it_again() -> None:
    options = {"stages": 4, "forward_ms": 20.0, "backward_ms": 30.0, "time_limit_s": 60.0, "turns": 3}
    request = bench_pipeline.requested("4,8,4", None, "gpipe,torch_gpipe", **options)
    assert [(case.model, case.microbatches) for case in request.cases] == [
        (SLEEPING, 4),
        (SLEEPING, 8),
        (BLOCKS, 4),
        (BLOCKS, 8),
    ]
    assert request.command == (
        "python -m examples.benchmarks "
        "pipeline --stages 4 --microbatches 4,8 --models sleeping,blocks --systems gpipe,torch_gpipe"
        " --forward-ms 20 --backward-ms 30 --time-limit-s 60 --turns 3"
    )
    assert replace(CASE, microbatches=2).fill == 6 and CASE.fill == 5
