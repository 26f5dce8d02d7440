"""Every event of docs/developers/events.md under every exchange: training then continues as in one process."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.event_table import cases, environment, label
from integration_tests.support.event_training import EventTraining
from integration_tests.support.events import ARMED, COLUMNS, RESIDUAL
from integration_tests.support.merging import ask_for
from integration_tests.support.ranks import run_ranks
from paceline.errors import UserError

UNSCALED = ("partial", "local")  # their loss may not be scaled


def accumulation(training: EventTraining) -> None:
    """Updates of two and of three backward passes."""
    training.steps()
    for passes in (2, 3, 1):
        training.optimizer.set_backward_passes_per_step(passes)
        training.passes = passes
        training.step()
    training.go_on()


def _scaled(scaler: Any, factor: float, loss: Any) -> Any:
    return scaler.scale(loss * factor)


def skipped_step(training: EventTraining) -> None:
    """An overflow on one rank under a GradScaler."""
    training.steps()
    training.check()
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    training.lost *= 5  # residuals keep the scale of their step
    for number in range(4):
        training.optimizer.zero_grad()
        factor = float("inf") if number == 1 and training.rank == 1 else 1.0
        training.backward(counted=number != 1, scale=functools.partial(_scaled, scaler, factor))
        if training.column in UNSCALED:
            with pytest.raises(training.hvd.UsageError, match=r"(?s)(late gradients|equally many).*bfloat16"):
                scaler.step(training.optimizer)
            return
        scaler.step(training.optimizer)
        scaler.update()
    assert scaler.get_scale() == 32.0
    training.check()
    training.go_on()


def not_finite(training: EventTraining) -> None:
    """An infinity and a NaN in one gradient of one rank."""
    training.steps()
    training.optimizer.zero_grad()
    gradient = training.gradient("b", training.rank, training.number)
    if training.rank == 1:
        gradient[1], gradient[2] = float("inf"), float("nan")
    rest = [(training.weights[name] * training.gradient(name, training.rank, training.number)).sum() for name in "ac"]
    torch.stack([*rest, (training.weights["b"] * gradient).sum()]).sum().backward()
    training.count(list("abc"))
    training.number += 1
    training.optimizer.step()
    for _ in range(3):
        training.step()
    training.check("ac")
    found = training.weights["b"].detach().double()
    assert not found[1:3].isfinite().any(), f"{training}: an infinity or NaN has become a number"
    if training.column != RESIDUAL:  # q8 has one scale for many values
        assert torch.equal(found[3:], training.wanted["b"][3:]) and found[0] == training.wanted["b"][0], training


def absent_on_one_rank(training: EventTraining) -> None:
    """Each rank lacks a different gradient, also in the first update, before ranks know which are dense."""
    for number in range(2):
        if number:
            training.steps()
        for lacking in range(training.size):
            training.optimizer.zero_grad()
            absent = "bc"[lacking % 2]
            training.count(list("abc"), without=(absent, lacking))
            training.backward(absent if training.rank == lacking else "", counted=False)
            training.optimizer.step()
    training.go_on()


def absent_on_all_ranks(training: EventTraining) -> None:
    """A parameter that no rank uses yet stays unchanged, then is used."""
    for _ in range(3):
        training.optimizer.zero_grad()
        training.count(list("ab"))
        training.backward("c", counted=False)
        training.optimizer.step()
        gradient = training.weights["c"].grad
        if training.column in ("pipelined", "partial"):
            assert gradient is None or not gradient.any(), training
        else:
            assert gradient is None, training
    training.steps()
    training.go_on()


def frozen_and_thawed(training: EventTraining) -> None:
    """With a drain before either."""
    training.steps()
    for frozen in (True, False):
        training.check()
        training.optimizer.zero_grad()
        training.weights["b"].requires_grad_(not frozen)
        before = training.weights["b"].detach().clone()
        for _ in range(3):
            training.step()
        assert not frozen or torch.equal(before, training.weights["b"]), training
    training.go_on()


def replaced_or_added(training: EventTraining) -> None:
    """Replace a parameter, then add one in a separate group, each after a drain."""
    training.steps()
    training.check()
    old = training.weights["b"]
    training.weights["b"] = torch.nn.Parameter(old.detach().clone())
    for group in training.optimizer.param_groups:
        group["params"] = [training.weights["b"] if one is old else one for one in group["params"]]
    training.step()
    training.check()
    new = training.weights["d"] = torch.nn.Parameter(torch.zeros(7, dtype=training.dtype))
    training.wanted["d"] = torch.zeros(7, dtype=torch.float64)
    training.optimizer.add_param_group({"params": [new]})
    training.go_on()


def changed_after_submission(training: EventTraining) -> None:
    """Refused on the rank that changes its gradient; of a local exchange nothing was submitted."""
    training.steps()
    training.check()
    training.optimizer.zero_grad()
    training.backward(counted=training.column == "local")
    training.weights["b"].grad = training.weights["b"].grad.clone()
    if training.column == "local":
        training.optimizer.step()
        training.check()
        return
    with pytest.raises(training.hvd.UsageError, match=f"(?s)Rank {training.rank}: .*changed.*synchronize"):
        training.optimizer.step()
    training.optimizer.forget()


def second_optimizer(training: EventTraining) -> None:
    """A second optimizer with equal names, in turn with the first one."""
    training.steps()
    other = EventTraining(training.rank, training.size, training.column, training.label)
    for _ in range(4):
        training.step()
        other.step()
    other.check()
    training.go_on()


def other_collectives(training: EventTraining) -> None:
    """A metric, a broadcast and a gathering between backward pass and step: all are exact."""
    hvd, rank, size = training.hvd, training.rank, training.size
    training.steps()
    metric = torch.arange(300, dtype=torch.float32) * 1.25 + rank
    for number in range(3):
        training.optimizer.zero_grad()
        training.backward()
        found = hvd.allreduce(metric, op=hvd.Sum, name=f"{training.label}.metric")
        assert torch.equal(found, size * (metric - rank) + size * (size - 1) / 2), training
        assert hvd.broadcast(torch.tensor(float(rank + number)), 1, name=f"{training.label}.root").item() == 1 + number
        assert hvd.allgather(torch.tensor([rank]), name=f"{training.label}.all").tolist() == list(range(size))
        training.optimizer.step()
    training.go_on()


def _saved(training: EventTraining) -> bytes:
    training.hvd.barrier()  # all ranks have made the same calls
    file = io.BytesIO()
    training.optimizer.consolidate_state_dict(to=None)
    weights = {name: one.detach() for name, one in training.weights.items()}
    torch.save([training.optimizer.state_dict(), weights, training.wanted, training.number], file)
    training.hvd.barrier()
    return file.getvalue()


def _load(training: EventTraining, saved: bytes) -> None:
    state, weights, training.wanted, training.number = torch.load(io.BytesIO(saved))
    training.weights = {name: torch.nn.Parameter(one) for name, one in weights.items()}
    training.wrap()
    training.optimizer.load_state_dict(state)


def saved_and_loaded(training: EventTraining) -> None:
    """Each rank loads its own file into another optimizer; updates after saving are dropped."""
    training.steps()
    saved = _saved(training)
    for _ in range(2):
        training.step()
    training.hvd.barrier()
    training.optimizer.forget()
    _load(training, saved)
    training.go_on()


def new_world(training: EventTraining) -> None:
    """As an elastic reset with gradients in flight: ranks continue from their committed state."""
    training.steps()
    saved = _saved(training)
    training.step()
    training.optimizer.zero_grad()
    training.backward()
    training.hvd.barrier()
    training.optimizer.forget()  # as TorchState does; of ranks that restart none is through
    training.hvd.shutdown()
    training.hvd.init()
    _load(training, saved)
    if training.column == ARMED:
        training.steps()
    training.go_on()


EVENTS: dict[str, Callable[[EventTraining], None]] = {
    event.__name__: event
    for event in (
        accumulation, skipped_step, not_finite, absent_on_one_rank, absent_on_all_ranks, frozen_and_thawed,
        replaced_or_added, changed_after_submission, second_optimizer, other_collectives, saved_and_loaded, new_world,
    )
}  # fmt: skip


def _try(rank: int, size: int, event: str, column: str) -> None:
    EVENTS[event](EventTraining(rank, size, column, f"table.{event}.{label(column)}"))
    if column == ARMED:
        hvd.barrier()
        ask_for("torch", "threshold")


@pytest.mark.parametrize(("event", "column"), cases(__file__, "test_as_one_process"))
def test_as_one_process(event: str, column: str) -> None:
    run_ranks(_try, 2, event, column, env=environment(column), fresh=event == "new_world")


def _save(rank: int, size: int, column: str) -> bytes:
    training = EventTraining(rank, size, column, f"ranks.{label(column)}")
    training.steps()
    if column == "local":
        training.step()  # the fourth: an average
    saved = _saved(training)
    training.optimizer.forget()
    return saved


def _go_on_with(rank: int, size: int, column: str, saved: bytes) -> None:
    training = EventTraining(rank, size, column, f"ranks.{label(column)}")
    if column == "partial":
        with pytest.raises(UserError, match=rf"(?s)rank 0 of 3, loaded by rank {rank} of 2.*each rank"):
            _load(training, saved)
        return
    _load(training, saved)
    training.go_on()


@pytest.mark.parametrize("column", [one for one in COLUMNS if one != ARMED])
def test_states_of_another_number_of_ranks(column: str) -> None:
    saved: list[Any] = run_ranks(_save, 3, column)
    run_ranks(_go_on_with, 2, column, saved[0])
