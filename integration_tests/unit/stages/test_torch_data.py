"""Values sent between stages: tensors, trees, changing shapes; and backward passes at other weights."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from integration_tests.support.more import more
from integration_tests.support.stage_threads import in_threads
from integration_tests.support.stage_training import accumulate, data, merged, net, sgd, train
from integration_tests.unit.stages.pipelines import assert_close, made, piped, trained
from paceline.stages.execution import headers
from paceline.stages.execution.posting import Tag
from paceline.torch.stages import saved
from paceline.torch.stages.weights import Weights


class Fork(nn.Module):
    """Passes on a tuple: its input for a later layer, a mask, its output."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4, dtype=torch.float64)

    def forward(self, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        made = self.layer(value)
        return value.expand(3, *value.shape).transpose(0, 2), made > 0, made


class Pass(nn.Module):
    def forward(self, values: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        value, mask, made = values
        assert value.shape[0] == 4
        assert mask.dtype == torch.bool
        return value, mask, made.relu_()


class Join(nn.Module):
    def forward(self, values: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        value, mask, made = values
        return value.transpose(0, 2).sum(0) * mask + made


def forked() -> list[nn.Module]:
    torch.manual_seed(3)
    return [Fork(), Pass(), Join(), nn.Linear(4, 2, dtype=torch.float64)]


def odd_batch(step: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(step)
    count = [8, 8, 8, 5, 9, 8, 8, 8, 3, 4][step % 10]
    return (
        torch.randn(count, 4, generator=random, dtype=torch.float64),
        torch.randn(count, 2, generator=random, dtype=torch.float64),
    )


# Tensors up to this size are sent with their header: all, those with fewer rows, and none.
@pytest.mark.parametrize("small_bytes", [1 << 16, 256, 0])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("recompute", [False, True])
def test_tuples_masks_layouts_changes_in_place_and_changing_shapes(
    schedule: str, recompute: bool, small_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headers, "_SMALL_BYTES", small_bytes)
    models = [forked() for _ in range(4)]

    arguments: dict[str, Any] = {"schedule": schedule, "stages": [1, 2, 3], "recompute": recompute}
    given = [odd_batch(step) for step in range(20)]
    results = in_threads(
        4, lambda communicator: train(communicator, sgd, given, models[communicator.rank], **arguments)
    )
    model = nn.Sequential(*forked())
    accumulate(model, sgd, given, 3)
    assert_close(merged(results), model.state_dict(), 0.0)


def test_small_tensors_of_a_foreseen_signature_are_one_message_with_their_header() -> None:
    sent: list[list[tuple[int, int]]] = [[], []]

    def body(communicator: Any) -> None:
        begin = communicator.send

        def send(peer: int, tag: int, data: Any, size_bytes: int | None = None) -> int:
            sent[communicator.rank].append((tag, memoryview(data).nbytes if size_bytes is None else size_bytes))
            return int(begin(peer, tag, data, size_bytes))

        model = [nn.Linear(4, 4), nn.Linear(4, 2)]
        pipeline = made(communicator, model, n_microbatches=2, schedule="gpipe", stages=[1])
        for _ in range(2):
            pipeline.step(torch.zeros(6, 4), torch.zeros(6, 2))
        communicator.send = send
        pipeline.step(torch.zeros(6, 4), torch.zeros(6, 2))
        del communicator.send
        pipeline.close()

    in_threads(2, body)
    tensor_bytes = 3 * 4 * 4  # of a micro-batch: rows, features, float32
    assert sent[0] == [(Tag.HEADER, 16 + tensor_bytes)] * 2
    assert sorted(sent[1]) == [(Tag.GRADIENT, tensor_bytes)] * 2 + [(Tag.LOSS, 16)]  # and the weight of the pipeline


def test_sums_are_not_weighted() -> None:
    def loss(output: Tensor, target: Tensor) -> Tensor:
        return ((output - target) ** 2).sum()

    value, target = odd_batch(1)

    def use(pipeline: Any) -> None:
        before = loss(pipeline.module(value), target).item()
        assert pipeline.step(value, target).item() == pytest.approx(before)

    piped(1, use, lambda: [nn.Linear(4, 2, dtype=torch.float64)], loss=loss, loss_reduction="sum")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("schedule", ["1f1b", "pipedream", "2bw", "pipemare"])
def test_types_of_few_digits(dtype: torch.dtype, schedule: str) -> None:
    late: dict[str, Any] = {"correction": 0.3, "annealing_steps": 4} if schedule == "pipemare" else {}

    results = trained(3, [data(0, 9, dtype)] * 30, lambda: net(dtype), schedule=schedule, max_norm=1.0, **late)
    losses, whole = results[0]
    assert [other for other, _ in results] == [losses] * 3
    assert losses[-1] < 0.8 * losses[0]
    assert {one.dtype for one in whole["model"].values()} == {dtype}


WIDTH = 5


class Pair(NamedTuple):
    hidden: Tensor
    mask: Tensor | None


@dataclasses.dataclass
class State:
    """Like Hugging Face's outputs: members may be None or trees."""

    pair: Pair
    past: tuple[Tensor, ...] | None = None
    position: int = 0
    scale: float = 1.0
    kind: str = "plain"
    cached: bool = False


class Output(collections.OrderedDict):  # type: ignore[type-arg]
    """Registered by its library, as transformers does with its outputs."""


def _output(values: Any, keys: Any) -> Output:
    return Output(zip(keys, values, strict=True))


pytree.register_pytree_node(Output, lambda one: (list(one.values()), list(one)), _output)


class First(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)

    def forward(self, batch: dict[str, Any]) -> State:
        assert batch["labels"] is None
        made = self.layer(batch["values"]) * batch["factor"]
        return State(Pair(made, batch["mask"]), position=batch["position"] + 1, scale=batch["factor"] / 4)


class Second(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)

    def forward(self, state: State) -> Output:
        assert type(state) is State
        assert (state.past, state.kind, state.cached) == (None, "plain", False)
        assert type(state.position) is int
        assert type(state.scale) is float
        made = self.layer(state.pair.hidden).tanh() * state.scale + state.position / 20
        return Output(pairs=[Pair(made, state.pair.mask), Pair(state.pair.hidden, None)], count=state.position)


class Third(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, 2, dtype=torch.float64)

    def forward(self, given: Output) -> dict[str, Tensor]:
        assert type(given) is Output
        (made, mask), (before, none) = given["pairs"]
        assert none is None
        return {"logits": self.layer((made + before) * mask[:, None])}


def model() -> list[nn.Module]:
    torch.manual_seed(2)
    return [First(), Second(), Third()]


def batch(step: int) -> tuple[dict[str, Any], dict[str, Any]]:
    random = torch.Generator().manual_seed(step)
    rows = (6, 7)[step % 2]
    values = torch.randn(rows, WIDTH, generator=random, dtype=torch.float64)
    inputs = {"values": values, "mask": values[:, 0] > -1, "labels": None, "position": step, "factor": 2.5}
    return inputs, {"goal": torch.randn(rows, 2, generator=random, dtype=torch.float64), "weight": 3}


def loss(output: dict[str, Tensor], target: dict[str, Any]) -> Tensor:
    return ((output["logits"] - target["goal"]) ** 2).mean() * target["weight"]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("stages", [more(1), more(2), 3])
@pytest.mark.parametrize("recompute", [False, True])
def test_trees_equal_one_process(schedule: str, stages: int, recompute: bool) -> None:
    def use(pipeline: Any) -> tuple[dict[str, Tensor], list[float], Any, int]:
        losses = [pipeline.step(*batch(step)).item() for step in range(20)]
        output = pipeline.predict(batch(0)[0])
        return dict(pipeline.state_dict()["model"]), losses, output, len(pipeline._executor._departures._known)

    plain = nn.Sequential(*model())
    losses = accumulate(plain, sgd, map(batch, range(20)), 3, loss=loss)
    weights = plain.state_dict()
    for found, reported, output, signatures in piped(
        stages, use, model, loss=loss, schedule=schedule, recompute=recompute
    ):
        assert_close(found, {name: weights[name] for name in found}, 0.0)
        assert reported == losses
        torch.testing.assert_close(output["logits"], plain(batch(0)[0])["logits"].detach(), rtol=0, atol=1e-15)
        # Numbers that change, such as positions, do not make new signatures, which both ends keep.
        assert signatures <= 4


def test_trees_of_users_are_left_alone_and_layers_that_take_trees_are_timed() -> None:
    @dataclasses.dataclass
    class Mine:
        value: Any

    from paceline.torch.stages import trees

    pytree.register_dataclass(Mine)
    leaves, spec = trees.flattened(Mine(torch.zeros(2)))
    assert len(leaves) == 1
    assert type(spec.unflatten(leaves)) is Mine
    # Layers that take trees can be timed.
    first, second = piped(2, lambda pipeline: [*pipeline.cut], model, loss=loss, stages="time", sample=batch(0)[0])
    assert first == second
    assert first[0] == "0"


def test_weights_are_replaced_where_they_were_saved() -> None:
    layer, value = nn.Linear(3, 2), torch.randn(4, 3, requires_grad=True)
    weights = list(layer.parameters())
    output = layer(value)
    assert saved.replace([output], weights, lambda number: 2 * weights[number].detach()) == 1
    output.sum().backward()
    assert torch.allclose(value.grad, torch.ones(4, 2) @ (2 * layer.weight))
    assert torch.allclose(layer.weight.grad, torch.ones(2, 4) @ value)
    # Parts of a weight and weights of one memory are distinguished.
    memory = torch.randn(12)
    first, second = nn.Parameter(memory[:6].view(2, 3)), nn.Parameter(memory[6:].view(3, 2))
    value = torch.randn(4, 3, requires_grad=True)
    output = value @ second[:, 1:] + (value @ first.T)[:, :1]
    instead = [10 * first.detach(), 100 * second.detach()]
    assert saved.replace([output], [first, second], lambda number: instead[number]) == 2
    output.sum().backward()
    expected = torch.ones(4, 1) @ instead[1][:, 1:].T + torch.tensor([[1.0, 0.0]]).expand(4, 2) @ instead[0]
    assert torch.allclose(value.grad, expected)
    # Convolutions and norms.
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, 1))
    weights = list(model.parameters())
    value = torch.randn(3, 2, 5, requires_grad=True)
    output = model(value)
    assert saved.replace([output], weights, lambda number: torch.zeros_like(weights[number])) >= 4
    output.sum().backward()
    assert not value.grad.any()


@pytest.mark.parametrize("change", ["output", "input"])
def test_autograd_still_refuses_what_was_changed_in_place(change: str) -> None:
    layer = nn.Linear(3, 3)
    weights = list(layer.parameters())
    value = torch.randn(2, 3)
    hidden = layer(value).tanh()
    output = layer(hidden)
    assert saved.replace([output], weights, lambda number: weights[number].detach())
    (hidden if change == "output" else value).detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_what_checkpoints_hide_is_left_alone() -> None:
    layer, value = nn.Linear(3, 3), torch.randn(2, 3, requires_grad=True)
    calls = []
    layer.register_forward_hook(lambda *_: calls.append(1))
    output = checkpoint(layer, value, use_reentrant=False)
    saved.replace([output], list(layer.parameters()), lambda number: torch.zeros(()))
    assert len(calls) == 1, "computed again before the backward pass"
    output.sum().backward()
    assert torch.allclose(value.grad, torch.ones(2, 3) @ layer.weight)


def one_more(weights: Weights) -> None:
    with torch.no_grad():
        for one in weights.parameters:
            one.add_(1)


@pytest.mark.parametrize("keep", [False, True])
def test_an_update_between_the_passes(keep: bool) -> None:
    """It changes the weights of the backward pass, unless older ones are kept while in use."""
    module = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
    parameters = list(module.parameters())
    weights = Weights(module, parameters)
    value = torch.randn(4, 3, requires_grad=True)
    used, before = weights.newest, [one.detach().clone() for one in parameters]
    with weights.lent():
        weights.use(used)
        output = module(value)
    assert all(mine is theirs for mine, theirs in zip(parameters, module.parameters(), strict=True))
    hidden = (value @ parameters[0].T + parameters[1]).tanh().detach()
    weights.update(lambda: one_more(weights), keep=keep, as_previous=False)
    assert torch.equal(parameters[0], before[0] + 1)
    assert weights.copies == 1 + keep
    weights.accumulate(used if keep else weights.newest, output.sum().backward)
    backward = before if keep else parameters
    gradient = (torch.ones(4, 2) @ backward[2]) * (1 - hidden**2)
    assert torch.allclose(value.grad, gradient @ backward[0])
    assert torch.allclose(parameters[0].grad, gradient.T @ value)
    del used, output
    assert weights.copies == 1


def test_recurrent_layers_compute_with_what_is_lent_to_them() -> None:
    module = nn.Sequential(nn.LSTM(3, 2))
    weights = Weights(module, list(module.parameters()))
    value = torch.randn(5, 1, 3)
    output, _ = module(value)
    doubled = weights.corrected(lambda number: 2 * weights.parameters[number])
    with weights.lent():
        weights.use(doubled)
        assert not torch.equal(module(value)[0], output)
    assert torch.equal(module(value)[0], output)
