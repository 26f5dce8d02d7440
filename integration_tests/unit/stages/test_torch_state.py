"""Stages that are saved, continue with another number of stages, share weights, and end together."""

from __future__ import annotations

import copy
import io
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from integration_tests.support import stage_training
from integration_tests.support.more import more
from integration_tests.support.stage_gpt import accumulate as accumulate_text
from integration_tests.support.stage_gpt import cross_entropy, gpt, text
from integration_tests.support.stage_threads import QueueCommunicator, in_threads
from integration_tests.support.stage_training import (
    N,
    Optimizer,
    accumulate,
    adam,
    adamw,
    data,
    momentum,
    net,
    rmsprop,
    sgd,
)
from integration_tests.unit.stages.pipelines import assert_close, made, piped, trained
from paceline.native.communicator import HorovodEnded, StageLost
from paceline.stages.execution.cut import first_layers
from paceline.stages.execution.parting import part
from paceline.stages.execution.posting import Communicator, Post
from paceline.stages.schedules import SCHEDULES
from paceline.torch.errors import UsageError
from paceline.torch.stages.layers import layers_of

LATE: dict[str, Any] = {"schedule": "pipemare", "correction": 0.3, "annealing_steps": 20, "warmup_steps": 2}


def saved_at(stages: int, optimizer: Optimizer, **arguments: Any) -> dict[str, Any]:
    """State saved by rank 0 after some steps, read back from a file."""
    given = [data(step, 10) for step in range(7)]
    first, *others = (whole for _, whole in trained(stages, given, optimizer=optimizer, **arguments))
    assert others == [None] * (stages - 1)
    return from_file(first)


def from_file(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file)


def plainly(whole: dict[str, Any], optimizer: Optimizer) -> list[float]:
    """Losses of the next steps in one process."""
    model = net()
    model.load_state_dict(whole["model"])
    made = optimizer(model.parameters())
    made.load_state_dict(copy.deepcopy(whole["optimizer"]))
    return accumulate(model, lambda _: made, [data(step, 10) for step in range(7, 10)], N)


def goes_on(stages: int, whole: dict[str, Any], optimizer: Optimizer, **arguments: Any) -> list[float]:

    def use(pipeline: Any) -> list[float]:
        pipeline.load_state_dict(whole)
        losses = []
        for step in range(7, 10):
            losses.append(pipeline.step(*data(step, 10)).item())
            pipeline.drain()
        return losses

    first, *others = piped(stages, use, optimizer=optimizer, **arguments)
    assert all(losses == first for losses in others)
    return list(first)


@pytest.mark.parametrize("optimizer", [momentum, adam, adamw])
@pytest.mark.parametrize("arguments", [{}, LATE], ids=["1f1b", "pipemare"])
def test_saved_at_three_stages_goes_on_at_two_at_one_and_as_the_plain_model(
    optimizer: Optimizer, arguments: dict[str, Any]
) -> None:
    whole = saved_at(3, optimizer, **arguments)
    expected = plainly(whole, optimizer)
    # With a drain after every step, gradients are never late.
    for stages in (1, 2, 3):
        found = goes_on(stages, whole, optimizer, schedule="1f1b")
        assert found == pytest.approx(expected, rel=0, abs=1e-6), stages


def test_what_schedules_and_corrections_need_goes_on_too() -> None:
    whole = saved_at(3, momentum, **LATE)
    assert whole["pipeline"]["steps"] == 7
    assert whole["pipeline"]["asynchronous"] == 5
    # The last stage is not late.
    assert set(whole["pipeline"]["deltas"]) < set(whole["model"])
    assert all(one.any() for one in whole["pipeline"]["deltas"].values())

    def use(pipeline: Any) -> Any:
        pipeline.load_state_dict(whole)
        assert pipeline.schedule == "pipemare"
        return pipeline.consolidate()

    again = piped(3, use, optimizer=momentum, **LATE)[0]
    assert again["pipeline"]["steps"] == 7
    assert_close(again["model"], whole["model"], 0.0)
    assert_close(again["pipeline"]["deltas"], whole["pipeline"]["deltas"], 0.0)


def test_velocities_and_updates_every_few_minibatches_go_on_at_another_number_of_stages() -> None:
    chosen: dict[str, Any] = {"schedule": "pipemare", "nesterov": 0.6, "update_every": 2}
    whole = saved_at(3, rmsprop, **chosen)
    assert set(whole["pipeline"]["velocities"]) == set(whole["model"])

    def use(pipeline: Any) -> Any:
        pipeline.load_state_dict(whole)
        again = copy.deepcopy(pipeline.consolidate())
        pipeline.step(*data(7, 10))
        pipeline.drain()
        return again, pipeline.consolidate()

    again, after = piped(2, use, optimizer=rmsprop, **chosen)[0]
    assert all(one.any() for one in whole["pipeline"]["velocities"].values())
    assert_close(again["pipeline"]["velocities"], whole["pipeline"]["velocities"], 0.0)
    expected, velocities = _one_more(whole, chosen["nesterov"], 2)
    assert_close(after["model"], expected)
    assert_close(after["pipeline"]["velocities"], velocities)


def test_gradients_that_wait_for_an_update_are_not_lost() -> None:
    def use(pipeline: Any) -> None:
        for step in range(3):
            pipeline.step(*data(step, 10))
        with pytest.raises(UsageError, match="saved with micro-batches under way, after 3 steps"):
            pipeline.state_dict()
        pipeline.drain()
        assert pipeline.state_dict()["optimizer"]["state"][0]["step"] == 2

    piped(2, use, optimizer=adam, schedule="1f1b", update_every=2)


def _one_more(whole: dict[str, Any], nesterov: float, stages: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Weights and velocities after one more step of one process, as if its layers were two stages."""
    model = net()
    model.load_state_dict(whole["model"])
    made = rmsprop(model.parameters())
    made.load_state_dict(copy.deepcopy(whole["optimizer"]))
    accumulate(model, lambda _: made, [data(7, 10)], N)
    cut = first_layers(layers_of(net()), stages, "auto", None)[1]
    weights, velocities = {}, {}
    for name, one in model.state_dict().items():
        gamma = nesterov + (0.99 - nesterov) * (0.5 if int(name.split(".")[0]) < cut else 0)
        velocity = gamma * whole["pipeline"]["velocities"][name] + (1 - gamma) * (one - whole["model"][name])
        velocities[name] = velocity
        weights[name] = whole["model"][name] + gamma * velocity + (1 - gamma) * (one - whole["model"][name])
    return weights, velocities


def test_groups_of_optimizers_and_plain_models_are_loaded() -> None:
    def grouped(parameters: Any) -> torch.optim.Optimizer:
        held = list(parameters)
        weights = [one for one in held if one.dim() > 1]
        biases = [one for one in held if one.dim() == 1]
        groups = [{"params": weights, "weight_decay": 0.1}, {"params": biases, "lr": 0.05}]
        return torch.optim.SGD(groups, lr=0.1, momentum=0.9)

    whole = saved_at(3, grouped)
    assert [len(group["params"]) for group in whole["optimizer"]["param_groups"]] == [5, 5]
    assert goes_on(2, whole, grouped) == pytest.approx(plainly(whole, grouped), rel=0, abs=1e-9)
    # A plain model and optimizer are loaded.
    model = net()
    optimizer = adam(model.parameters())
    accumulate(model, lambda _: optimizer, [data(step, 10) for step in range(3)], 1)
    whole = from_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    assert goes_on(3, whole, adam, schedule="gpipe") == plainly(whole, adam)


def test_own_states_of_another_cut_and_states_under_way_are_refused() -> None:
    def save(pipeline: Any) -> Any:
        pipeline.step(*data(0, 10))
        with pytest.raises(UsageError, match=r"saved with micro-batches under way, after 1 steps"):
            pipeline.state_dict()
        with pytest.raises(UsageError, match=r"loaded with micro-batches under way"):
            pipeline.load_state_dict({})
        pipeline.drain()
        return pipeline.state_dict()

    own = piped(2, save, optimizer=momentum, schedule="pipemare")

    def load(pipeline: Any) -> None:
        with pytest.raises(UsageError, match=r"lacks \d+ tensors of this stage"):
            pipeline.load_state_dict(own[1 if pipeline.stage == 0 else 0])

    piped(3, load, optimizer=momentum)


@pytest.mark.parametrize("schedule", [*SCHEDULES])
def test_states_of_other_schedules_are_loaded(schedule: str) -> None:
    """State of one schedule is not used by another; weights and the optimizer's state are."""

    def body(communicator: Any) -> None:
        first = made(communicator, optimizer=momentum, schedule="pipemare", correction=0.3)
        for step in range(5):
            first.step(*data(step, 10))
        first.drain()
        state = first.state_dict()
        second = made(communicator, optimizer=momentum, schedule=schedule)
        second.load_state_dict(state)
        found = second.state_dict()
        assert_close(found["model"], state["model"], 0.0)
        for number, kept in found["optimizer"]["state"].items():
            assert torch.equal(kept["momentum_buffer"], state["optimizer"]["state"][number]["momentum_buffer"])
        second.step(*data(5, 10))
        second.drain()

    in_threads(3, body)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda state: state.pop("model"), "lacks 'model'"),
        (lambda state: state["model"].pop("2.weight"), "lacks 1 tensors of this stage, 2.weight"),
        (lambda state: state["model"].update({"2.weight": torch.zeros(2, 2)}), "2.weight"),
        (lambda state: state["optimizer"]["param_groups"].clear(), "lacks 2.weight, a parameter of this stage"),
        (lambda state: state["optimizer"].pop("state"), "lacks 'state'"),
    ],
)
def test_states_that_lack_something_change_nothing(spoil: Callable[[Any], Any], said: str) -> None:
    def use(pipeline: Any) -> None:
        pipeline.step(*data(0, 10))
        before = {name: one.clone() for name, one in pipeline.state_dict()["model"].items()}
        state = pipeline.state_dict()
        if pipeline.stage == 1:
            state["model"] = {name: one + 1 for name, one in state["model"].items()}
            spoil(state)
            with pytest.raises(UsageError) as caught:
                pipeline.load_state_dict(state)
            assert said in str(caught.value)
        assert_close(pipeline.state_dict()["model"], before, 0.0)
        pipeline.step(*data(1, 10))

    piped(2, use, optimizer=momentum, stages=[2])


EMBEDDING, HEAD = "0.tokens.weight", "3.logits.weight"


def pipelines(
    stages: int, steps: range, optimizer: Optimizer, state: Any = None, rows: int = 7, **arguments: Any
) -> list[Any]:
    """For each stage: losses, own weights, the state of all, names of trained parameters, outputs."""

    def use(pipeline: Any) -> Any:
        if state is not None:
            pipeline.load_state_dict(state)
        losses = [pipeline.step(*text(step, rows)).item() for step in steps]
        losses += [loss.item() for loss in pipeline.drain()]
        output = pipeline.predict(text(99, 5)[0])["logits"]
        whole = pipeline.consolidate()
        own = {name: one.clone() for name, one in pipeline.state_dict()["model"].items()}
        return losses, own, whole, pipeline.names, output

    return piped(stages, use, gpt, optimizer=optimizer, loss=cross_entropy, **arguments)


def assert_equal(found: dict[str, Tensor], plain: nn.Module) -> None:
    assert_close(found, {name: plain.state_dict()[name] for name in found})


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("stages", [more(1), more(2), 3, more(4)])
@pytest.mark.parametrize(
    ("optimizer", "arguments"),
    [(momentum, {"max_norm": 0.5}), (adamw, {}), (adamw, {"recompute": True, "max_norm": 2.0})],
)
def test_ties_equal_one_process(schedule: str, stages: int, optimizer: Optimizer, arguments: dict[str, Any]) -> None:
    plain = gpt()
    losses = accumulate_text(plain, optimizer(plain.parameters()), range(12), 7, 3, arguments.get("max_norm"))
    expected = plain(text(99, 5)[0])["logits"].detach()
    results = pipelines(stages, range(12), optimizer, schedule=schedule, **arguments)
    assert losses[-1] != losses[0]
    for found, own, _, _, output in results:
        assert found == pytest.approx(losses, rel=1e-12)
        assert_equal(own, plain)
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)
    # Both stages have the weight, bit for bit, and one optimizer trains it.
    assert torch.equal(results[0][1][EMBEDDING], results[-1][1][HEAD])
    names = [name for _, _, _, own, _ in results for name in own]
    assert names.count(EMBEDDING) == 1
    assert HEAD not in names
    whole = results[0][2]
    assert set(whole["model"]) == set(plain.state_dict())
    assert len(whole["optimizer"]["state"]) == len(list(plain.parameters()))


def test_the_state_goes_on_in_one_process_and_in_another_cut() -> None:
    plain = gpt()
    optimizer = adamw(plain.parameters())
    accumulate_text(plain, optimizer, range(4), 7, 3)
    whole = pipelines(3, range(4), adamw)[0][2]
    losses = accumulate_text(plain, optimizer, range(4, 9), 7, 3)
    for found, own, *_ in pipelines(2, range(4, 9), adamw, whole):
        assert found == pytest.approx(losses, rel=1e-12)
        assert_equal(own, plain)
    again = gpt(seed=1)
    loaded = adamw(again.parameters())
    again.load_state_dict(whole["model"])
    loaded.load_state_dict(whole["optimizer"])
    assert accumulate_text(again, loaded, range(4, 9), 7, 3) == pytest.approx(losses, rel=1e-12)


def test_an_update_of_several_minibatches() -> None:
    plain = gpt()
    # The mean of two mini-batches of equal size is that of one with both.
    both = [pytree.tree_map(lambda *one: torch.cat(one), text(step, 6), text(step + 1, 6)) for step in (0, 2, 4)]
    stage_training.accumulate(plain, sgd, both, 6, loss=cross_entropy)
    for _, own, *_ in pipelines(3, range(6), sgd, rows=6, update_every=2):
        assert_equal(own, plain)


def test_copies_begin_with_the_weights_of_their_owner_and_freeze_with_them() -> None:
    models = [gpt(seed=rank) for rank in range(3)]
    for model in models:
        model[0].tokens.weight.requires_grad_(False)

    def use(pipeline: Any) -> Any:
        for step in range(3):
            pipeline.step(*text(step, 4))
        return pipeline.state_dict()["model"].get(EMBEDDING if pipeline.stage == 0 else HEAD)

    first, _, last = piped(3, use, iter(models).__next__, loss=cross_entropy, n_microbatches=2)
    assert torch.equal(first, gpt(seed=0)[0].tokens.weight)
    assert torch.equal(last, first)


class Shared(nn.Module):
    """Layer whose only parameter is shared with other layers."""

    def __init__(self, tied: nn.Parameter) -> None:
        super().__init__()
        self.tied = tied

    def forward(self, value: Tensor) -> Tensor:
        return (value @ self.tied).tanh()


def test_a_weight_of_three_stages_of_which_two_train_nothing_else() -> None:
    def model() -> list[nn.Module]:
        tied = nn.Parameter(torch.eye(5, dtype=torch.float64) / 2)
        return [Shared(tied), Shared(tied), Shared(tied)]

    batch, target = data(0, 6)[0], data(1, 6)[0]
    plain = nn.Sequential(*model())
    stage_training.accumulate(plain, momentum, [(batch, target)] * 5, 3, max_norm=0.1)

    def use(pipeline: Any) -> Any:
        assert (pipeline.optimizer is None) == (pipeline.stage > 0)
        for _ in range(5):
            pipeline.step(batch, target)
        return pipeline.state_dict()["model"][f"{pipeline.stage}.tied"]

    for found in piped(3, use, model, optimizer=momentum, max_norm=0.1):
        torch.testing.assert_close(found, plain[0].tied.detach(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("last", [0, 1, 2])
@pytest.mark.parametrize("size", [1, 3])
def test_nobody_goes_before_the_last_has_come(size: int, last: int) -> None:
    going: list[str] = []
    comes = threading.Event()

    def stage(communicator: QueueCommunicator) -> None:
        if communicator.rank == min(last, size - 1):
            comes.wait(0.3)
            going.append("last comes")
        part(Post(communicator))
        going.append("goes")

    in_threads(size, stage)
    assert going == ["last comes", *["goes"] * size]


class Ends:
    """Transport of rank `rank` of three, on which Horovod ends at operation `number`."""

    def __init__(self, rank: int, number: int) -> None:
        self.rank, self.size = rank, 3
        self._left = number

    def send(self, *_: Any) -> int:
        self._left -= 1
        return 0

    receive = send

    def wait(self, operation: int, limit_s: float | None = None) -> None:
        if self._left < 0:
            raise HorovodEnded("Horovod was shut down")


def test_an_end_of_horovod_is_expected_once_all_have_come() -> None:
    for rank, each in ((0, 4), (1, 2)):
        for number in range(each):
            with pytest.raises(StageLost):
                part(Post(cast(Communicator, Ends(rank, number))))
        for number in range(each, 2 * each + 1):
            part(Post(cast(Communicator, Ends(rank, number))))
