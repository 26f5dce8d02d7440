"""Trainings of benchmarks: networks, plans that ranks wait for, late ranks and uneven batches."""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paceline.errors import UserError
from paceline.examples import characters_lengths
from paceline.examples.benchmarks import delays, pace
from paceline.examples.benchmarks.harness.turns import Limits
from paceline.examples.benchmarks.networks.computing import ComputingNetwork
from paceline.examples.benchmarks.networks.models import MODELS, find
from paceline.examples.benchmarks.networks.sleeping import SleepingNetwork
from paceline.examples.benchmarks.pace import UNMEASURED, Pace
from paceline.examples.benchmarks.skew import model
from paceline.examples.benchmarks.steps import plans
from paceline.examples.benchmarks.steps.plans import Merging, Plan, Ready, WarmUp
from paceline.examples.benchmarks.training import uneven
from paceline.launch import runs


@pytest.mark.parametrize(
    ("name", "tensors", "parameters"),
    [
        ("resnet20", 65, 272_474),
        ("resnet50", 161, 25_557_032),
        ("bert-base", 199, 109_482_240),
        ("vgg16", 32, 138_357_544),
        ("lstm", 10, 51_034_000),
    ],
)
def test_tensors_and_parameters_are_the_published_ones(name: str, tensors: int, parameters: int) -> None:
    model = find(name)
    assert (model.tensors, model.parameters) == (tensors, parameters)


@pytest.mark.parametrize("model_name", MODELS)
def test_every_parameter_of_every_model_gets_a_gradient_from_the_last_layer_on(model_name: str) -> None:
    model = find(f"{model_name}-x0.001")
    network, seen = SleepingNetwork(model), []
    network.hurried = True
    for name, parameter in network.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: seen.append(name.rpartition(".")[0]))
    network().backward()
    assert seen == [name.rpartition(".")[0] for name, _ in network.named_parameters()][::-1], "from the last layer on"
    shapes = [shape for layer in model.layers for _, shape in layer.tensors]
    assert [tuple(parameter.grad.shape) for parameter in network.parameters()] == shapes
    assert sum(model.shares) == pytest.approx(1)


def test_models_scale_and_the_network_that_computes_has_the_tensors_of_its_model() -> None:
    whole, both = find("bert-base"), find("bert-base-x0.02-t0.5")
    assert both.tensors == whole.tensors and both.compute_ms == whole.compute_ms / 2
    assert both.parameters == pytest.approx(whole.parameters / 50, abs=whole.tensors / 2)
    # The network that computes has the tensors of its model.
    shapes = sorted(shape for layer in find("resnet20-real").layers for _, shape in layer.tensors)
    network = ComputingNetwork(0)
    assert sorted(tuple(parameter.shape) for parameter in network.parameters()) == shapes
    assert list(network.buffers()) == [], "DDP would broadcast them in every step"
    assert all(map(torch.equal, network.parameters(), ComputingNetwork(1).parameters()))


@pytest.mark.parametrize(
    ("name", "said"),
    [("resnet5O", "Did you mean resnet50?"), ("mini-x0", "The factor '0'"), ("mini-t0.5-x1", "no model")],
)
def test_a_name_that_cannot_be_used_is_refused(name: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        find(name)
    assert said in str(caught.value)


@pytest.mark.parametrize("kind", ["sleeping", "computing"])
def test_marked_gradients_pass_the_check_only_when_they_are_the_mean(kind: str) -> None:
    network = SleepingNetwork(find("mini")) if kind == "sleeping" else ComputingNetwork(1)
    network.mark(1)  # of three ranks, rank 1 has the mean
    network().backward()
    with pytest.raises(RuntimeError, match=r"element 0: expected the mean over 2 ranks, 12, found 16"):
        network.check_mean(2)
    with pytest.raises(RuntimeError, match="gradients of this very step were used"):
        network.check_not_yet(3)
    list(network.parameters())[3].grad.view(-1)[2] += 1
    with pytest.raises(RuntimeError, match=r"element 2: expected"):
        network.check_mean(3)
    network.zero_grad(set_to_none=True)
    with pytest.raises(RuntimeError, match=r"has no gradient"):
        network.check_mean(3)
    network.mark(0)
    network().backward()
    network.check_mean(1)


PLAN = Plan(1, 0, (4,), 0.0, 0.0, 0.0, 1e-3, 0.0)


def ready(*states: str) -> list[Ready]:
    return [Ready(0.1, Merging(state, "", PLAN if state == "active" else None)) for state in states]


def test_ranks_step_in_batches_until_all_have_a_plan_and_are_checked_then() -> None:
    asked: list[WarmUp] = []
    logged: list[str] = []
    answers = iter([ready("active", "warming"), ready("active", "active"), ready("active", "active")])

    def ask(order: WarmUp) -> list[Ready]:
        asked.append(order)
        return next(answers)

    found = plans.until_active("optimal", ready("warming", "warming"), ask, logged.append)
    assert asked == [WarmUp(plans.BATCH_STEPS, check=False)] * 2 + [WarmUp(1, check=True)]
    assert all(one.merging is not None and one.merging.plan for one in found)
    assert logged[-1] == "optimal warms up, 5 steps, active (rank 0), warming (rank 1)"


def test_without_plans_no_step_is_made_and_ranks_that_never_plan_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plans.until_active("ddp", [Ready(0.1)], lambda order: pytest.fail("it was asked")) == [Ready(0.1)]
    # A rank that refuses and one that never plans end the benchmark.
    with pytest.raises(UserError, match="Rank 1 of optimal refuses to merge: no reason given"):
        plans.until_active("optimal", ready("warming", "refused"), lambda order: [])
    monkeypatch.setattr(plans, "MOST_STEPS", 10)
    with pytest.raises(UserError, match=r"does not merge by a plan after 10 steps .* warming \(rank 0, 1\)"):
        plans.until_active("optimal", ready("warming", "warming"), lambda order: ready("warming", "warming"))


@pytest.mark.parametrize("ranks", [2, 3, 7, 8, 32])
def test_the_closed_forms_are_what_every_rank_waits(ranks: int) -> None:
    def waits(trigger: int) -> float:
        return sum(max(0, trigger - rank) for rank in range(ranks)) / ranks

    assert model.expected_wait("sync", ranks) == pytest.approx(waits(ranks - 1)) == pytest.approx((ranks - 1) / 2)
    drawn = sum(map(waits, range(ranks))) / ranks
    assert model.expected_wait("random", ranks) == pytest.approx(drawn) == pytest.approx((ranks**2 - 1) / (6 * ranks))
    assert model.expected_wait("majority", ranks) == pytest.approx(waits(-(-ranks // 2) - 1))
    assert model.expected_wait("solo", ranks) == waits(0) == 0
    assert model.expected_fresh("random", ranks) == (ranks + 1) / 2


def test_a_late_rank_saves_the_transfer() -> None:
    # Of 4 ranks 2 arrive in time and wait 1 and 0 skews; the others get the result without the transfer of 0.4 skews.
    assert model.with_transfer([2], 4, 0.4) == pytest.approx(1 / 4 - 0.4 / 2)
    assert model.with_transfer([4, 4], 4, 0.4) == pytest.approx(1.5)


RANKS = 8


def _delays(kind: str, step: int, seed: int = 0) -> list[float]:
    return [delays.delay_ms(kind, 40.0, step, rank, RANKS, seed) for rank in range(RANKS)]


def test_delays_rotate_or_hit_one_random_rank_in_each_step() -> None:
    amounts = [5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0]
    assert _delays(delays.ROTATING, 0) == amounts and _delays(delays.ROTATING, 1) == [*amounts[1:], amounts[0]]
    assert _delays(delays.NONE, 3) == [0.0] * RANKS
    with pytest.raises(ValueError, match="delays are one of none, random, rotating, found 'late'"):
        _delays("late", 0)
    late = []
    for step in range(400):
        found = _delays(delays.RANDOM, step)
        assert sorted(found) == [0.0] * (RANKS - 1) + [40.0]
        late.append(found.index(40.0))
    assert set(late) == set(range(RANKS)) and max(map(late.count, range(RANKS))) < 100
    assert late != [_delays(delays.RANDOM, step, seed=1).index(40.0) for step in range(400)]


def test_pace_sleeps_for_computing_and_delay_and_leaves_the_first_steps_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, slept = 100.0, []

    def sleep(duration_s: float) -> None:
        nonlocal now_s
        now_s += duration_s
        slept.append(duration_s)

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    found = Pace(lambda step: 30.0 if step < UNMEASURED else 10.0)
    with pytest.raises(ValueError, match="no step was made"):
        found.steps_per_s()
    found.compute(10.0)
    assert slept == [0.04] and found.steps_per_s() == pytest.approx(25.0)
    for _ in range(UNMEASURED - 1 + 20):
        found.compute(10.0)
    assert found.steps_per_s() == pytest.approx(50.0)


def test_pace_takes_lateness_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Recorded computations of a rank, scaled to the compute time: half of it, then twice as long."""
    (tmp_path / "late.csv").write_text("step,rank,forward_s\n0,0,1\n0,1,2\n1,0,2\n1,1,4\n")
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    pace.add_arguments(parser)
    chosen = parser.parse_args(["--compute-ms", "100", "--late", str(tmp_path / "late.csv")])
    for rank in (0, 1):
        of_rank = pace.of(chosen, rank, 2)
        for _ in range(3):
            of_rank.compute(chosen.compute_ms)
    assert slept == pytest.approx([0.05, 0.1, 0.05, 0.1, 0.2, 0.1])


def test_batches_have_pieces_of_similar_length() -> None:
    batches = list(itertools.islice(characters_lengths.training(0, 4, 8, 0), 300))
    lengths = []
    for inputs, targets in batches:
        assert inputs.shape == targets.shape and inputs.min() >= 0 and inputs.max() < 256
        known = targets != characters_lengths.NOTHING
        # A piece is one run of characters, and each one's target is the next.
        assert (known[:, :-1] >= known[:, 1:]).all() and known[:, 0].all()
        np.testing.assert_array_equal(inputs[:, 1:][known[:, :-1]], targets[:, :-1][known[:, :-1]])
        lengths.append(known.sum(axis=1) + 1)
        assert lengths[-1].min() >= characters_lengths.SHORTEST and lengths[-1].max() <= characters_lengths.LONGEST
    assert np.mean([one.std() for one in lengths]) < 0.1 * np.std(np.concatenate(lengths))
    again = itertools.islice(characters_lengths.training(0, 4, 8, 0), 300)
    assert all(np.array_equal(one[0], other[0]) for one, other in zip(batches, again))


def test_exchanges_train_alike_but_for_the_seed_of_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str, str]] = []

    def train(script: Path, ranks: int, arguments: Any, environ: Any, limit_s: float) -> dict[str, Any]:
        assert script.exists() and ranks == 8
        seed = arguments[arguments.index("--seed") + 1]
        seen.append((script.stem, environ["PACELINE_EXCHANGE"], seed))
        speed = {"sync": 2.0, "majority": 4.0}[environ["PACELINE_EXCHANGE"]]
        return {"steps_per_s": speed, "accuracy": 0.9, "loss": 0.1, "apart": 0.02}

    monkeypatch.setattr(runs, "train", train)
    settings = uneven.Settings(cases=("random", "lengths"), systems=("sync", "majority"), seeds=2)
    found = list(uneven.measure(settings, Limits(60.0), lambda text: None))
    turns = [("sync", "0"), ("majority", "0"), ("sync", "1"), ("majority", "1")]
    assert seen == [(script, *turn) for script in ("uneven_digits", "uneven_lengths") for turn in turns]
    (ratio,) = found[0].comparison.ratios
    assert ratio.name == "majority_over_sync" and found[0].comparison.value(ratio).median == 0.5
    with pytest.raises(UserError, match="'late'"):
        next(uneven.measure(uneven.Settings(systems=("late",)), Limits(), print))
    once = list(uneven.measure(settings, Limits(1e-9), lambda text: None))
    assert [one.comparison.complete for one in once] == [1, 1], "each case gets one seed"


def test_exchanges_train_again_for_the_time_of_the_synchronous_run(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def train(script: Path, ranks: int, arguments: Any, environ: Any, limit_s: float) -> dict[str, Any]:
        more = "--steps" in arguments
        steps.append(arguments[arguments.index("--steps") + 1] if more else "")
        speed = {"sync": 2.0, "majority": 3.0}[environ["PACELINE_EXCHANGE"]]
        return {"steps": 60, "steps_per_s": speed, "accuracy": 0.95 if more else 0.9, "loss": 0.1, "apart": 0.02}

    monkeypatch.setattr(runs, "train", train)
    settings = uneven.Settings(systems=("sync", "majority"), seeds=1, equal_time=True)
    (found,) = uneven.measure(settings, Limits(60.0), lambda text: None)
    assert steps == ["", "", "90"], "30 s at 3 steps per second"
    accuracy = {name: turn.figures["accuracy_then"] for name, (turn,) in found.comparison.turns.items()}
    assert accuracy == {"sync": 0.9, "majority": 0.95}
    with pytest.raises(UserError, match="Begin systems= with sync"):
        next(uneven.measure(uneven.Settings(systems=("majority", "sync"), equal_time=True), Limits(), print))
