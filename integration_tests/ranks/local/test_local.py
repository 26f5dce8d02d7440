"""The local exchange: ranks update alone, and their models are averaged; against one process that plays all ranks."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch

from integration_tests.support.keras_worlds import compiled_or_not, keras_ranks, numpy, same_everywhere
from integration_tests.support.ranks import ranks
from paceline.errors import UserError

TENSORFLOW = {"KERAS_BACKEND": "tensorflow", "TF_NUM_INTRAOP_THREADS": "1"}
SHAPES = [(5, 3), (3,), (7,)]
STEPS = 11
RATE, MOMENTUM = 0.1, 0.5
# Settings of hvd.Local: the plain mean, and every part of the outer optimizer.
CHOICES: list[dict[str, Any]] = [
    {"sync_every": 1},
    {"sync_every": 4},
    {"sync_every": 3, "outer_momentum": 0.75},
    {"sync_every": 3, "outer_momentum": 0.75, "outer_lr": 0.5, "nesterov": True},
    {"sync_every": 5, "fragments": 2},
    {"sync_every": 3, "mixing": 0.25},
    {"sync_every": 6, "fragments": 2, "mixing": 0.5, "outer_momentum": 0.75, "outer_lr": 0.5, "nesterov": True},
]
AHEAD: list[dict[str, Any]] = [  # where Python sees every update
    {"sync_every": 4, "delay": 1},
    {"sync_every": 6, "fragments": 2, "delay": 2, "mixing": 0.5, "outer_momentum": 0.75, "outer_lr": 0.5},
]
PARTS = {1: [[0, 1, 2]], 2: [[0], [1, 2]]}  # of 15, 3 and 7 elements: neighbours, about equally many


def _targets(rank: int) -> list[Any]:
    """Where the weights of a rank are drawn to: no two elements of no two ranks to the same value."""
    return [np.arange(np.prod(shape)).reshape(shape) / 7 + 3.0 * rank + index for index, shape in enumerate(SHAPES)]


def _played(size: int, steps: int, sync_every: int, outer_momentum: float = 0.0, outer_lr: float = 1.0,
            nesterov: bool = False, fragments: int = 1, delay: int = 0,
            mixing: float = 0.0) -> list[list[Any]]:  # fmt: skip
    """Return the weights of every rank after `steps` updates and a drain, all in one process, as the papers define it.

    The updates are SGD with momentum on |w - target|^2 / 2.
    """
    weights = [[np.zeros(shape) for shape in SHAPES] for _ in range(size)]
    inner = [[np.zeros(shape) for shape in SHAPES] for _ in range(size)]
    anchors, outer = [np.zeros(shape) for shape in SHAPES], [np.zeros(shape) for shape in SHAPES]
    sent: dict[int, Any] = {}

    def means(part: list[int]) -> dict[int, Any]:
        return {index: sum(one[index] for one in weights) / size for index in part}

    def use(found: dict[int, Any], share: float) -> None:
        for index, mean in found.items():
            change = anchors[index] - mean
            outer[index] = outer_momentum * outer[index] + change
            moved = change + outer_momentum * outer[index] if nesterov else outer[index]
            anchors[index] = anchors[index] - outer_lr * moved
            for one in weights:
                one[index] = (1 - share) * anchors[index] + share * one[index]

    for step in range(1, steps + 1):
        for rank in range(size):
            for index, target in enumerate(_targets(rank)):
                inner[rank][index] = MOMENTUM * inner[rank][index] + (weights[rank][index] - target)
                weights[rank][index] = weights[rank][index] - RATE * inner[rank][index]
        for number, part in enumerate(PARTS[fragments]):
            due, place = (number + 1) * sync_every // fragments, (step - 1) % sync_every + 1
            if place == due - delay:
                sent[number] = means(part)
            if place == due:
                use(sent.pop(number), mixing)
    for found in sent.values():
        use(found, mixing)
    if steps % sync_every or fragments > 1 or mixing:
        use(means([*range(len(SHAPES))]), 0.0)
    return weights


def _torch_optimizer(label: str, exchange: Any, **choices: Any) -> tuple[list[Any], Any]:
    import paceline.torch as hvd

    weights = [torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in SHAPES]
    named = [(f"{label}.{index}", weight) for index, weight in enumerate(weights)]
    sgd = torch.optim.SGD(weights, lr=RATE, momentum=MOMENTUM)
    return weights, hvd.DistributedOptimizer(sgd, named, exchange=exchange, **choices)


def _torch_update(rank: int, weights: list[Any], optimizer: Any) -> None:
    optimizer.zero_grad()
    for weight, target in zip(weights, _targets(rank), strict=True):
        ((weight - torch.from_numpy(target)) ** 2 / 2).sum().backward()
    optimizer.step()


@ranks(3, more=(2, 5), hvd="paceline.torch")
def test_torch_goes_as_one_process_that_plays_all_ranks(rank: int, size: int, hvd: Any) -> None:
    for number, choices in enumerate([*CHOICES, *AHEAD]):
        groups = 2 if number % 2 else None
        weights, optimizer = _torch_optimizer(f"played{number}", hvd.Local(**choices), groups=groups)
        for _ in range(STEPS):
            _torch_update(rank, weights, optimizer)
        assert optimizer.drain() == 0
        expected = _played(size, STEPS, **choices)[rank]
        for weight, wanted in zip(weights, expected, strict=True):
            np.testing.assert_allclose(weight.detach().numpy(), wanted, rtol=1e-12, err_msg=str(choices))
        flat = torch.cat([weight.detach().reshape(-1) for weight in weights])
        for theirs in hvd.allgather_object(flat, name=f"played{number}.same"):
            assert torch.equal(theirs, flat)
        optimizer.drain()  # nothing was updated since: no average, no momentum
        assert torch.equal(flat, torch.cat([weight.detach().reshape(-1) for weight in weights]))


@ranks(2, hvd="paceline.torch")
def test_torch_ranks_are_alone_between_averages(rank: int, size: int, hvd: Any) -> None:
    """No gradient is sent; a rank that is ahead waits only at the next average."""
    weights, optimizer = _torch_optimizer("alone", "local")
    _torch_update(rank, weights, optimizer)  # the ranks exchange once which exchange they use
    hvd.barrier()
    if rank == 0:
        for _ in range(6):
            _torch_update(rank, weights, optimizer)
    hvd.barrier()
    if rank == 1:
        for _ in range(6):
            _torch_update(rank, weights, optimizer)
    assert not all(
        torch.equal(weights[0], theirs) for theirs in hvd.allgather_object(weights[0].detach(), name="apart")
    )
    _torch_update(rank, weights, optimizer)  # the eighth
    assert all(torch.equal(weights[0], theirs) for theirs in hvd.allgather_object(weights[0].detach(), name="one"))


@ranks(2, hvd="paceline.torch")
def test_torch_resumed_run_goes_on_bit_for_bit(rank: int, size: int, hvd: Any) -> None:
    for number, choices in enumerate([*CHOICES, *AHEAD]):
        for before in (2, 3, 7):
            label = f"resumed{number}.{before}"
            weights, optimizer = _torch_optimizer(label, hvd.Local(**choices))
            for _ in range(before):
                _torch_update(rank, weights, optimizer)
            state = pickle.dumps([copy.deepcopy(optimizer.state_dict()), [one.detach().clone() for one in weights]])
            for _ in range(STEPS - before):
                _torch_update(rank, weights, optimizer)
            optimizer.drain()
            saved, values = pickle.loads(state)
            again, optimizer = _torch_optimizer(f"{label}.again", hvd.Local(**choices))
            with torch.no_grad():
                for weight, value in zip(again, values, strict=True):
                    weight.copy_(value)
            optimizer.load_state_dict(saved)
            for _ in range(STEPS - before):
                _torch_update(rank, again, optimizer)
            optimizer.drain()
            for one, other in zip(weights, again, strict=True):
                assert torch.equal(one, other), label


@ranks(2, hvd="paceline.torch")
def test_torch_forgets_what_other_ranks_had(rank: int, size: int, hvd: Any) -> None:
    """After ranks came or left all of them count from the beginning, and the outer momentum restarts."""
    choices = CHOICES[2]
    weights, optimizer = _torch_optimizer("forgotten", hvd.Local(**choices))
    for _ in range(4 + rank):  # an average takes 3; ranks are at different steps when one fails
        _torch_update(rank, weights, optimizer)
    optimizer.forget()
    with torch.no_grad():
        for weight in weights:
            weight.zero_()
            optimizer.state[weight].clear()
    for _ in range(STEPS):
        _torch_update(rank, weights, optimizer)
    optimizer.drain()
    for weight, wanted in zip(weights, _played(size, STEPS, **choices)[rank], strict=True):
        np.testing.assert_allclose(weight.detach().numpy(), wanted, rtol=1e-12)


@pytest.mark.parametrize(("averages", "said"), [("local", "the local exchange"), ("partial", "")])
@ranks(2, fresh=True, hvd="paceline.torch")
def test_drain_after_unequally_many_updates_is_an_error_on_all_ranks(
    rank: int, size: int, hvd: Any, averages: str, said: str
) -> None:
    exchange = "local" if averages == "local" else hvd.Partial("solo", sync_every=10)
    weights, optimizer = _torch_optimizer("unequal", exchange)
    for _ in range(2 + rank):
        _torch_update(rank, weights, optimizer)
    with pytest.raises(UserError, match=rf"updates since the last drain.*{said}.* from \[2\] to \[3\]"):
        optimizer.drain()


@ranks(2, hvd="paceline.torch")
def test_torch_what_is_refused(rank: int, size: int, hvd: Any) -> None:
    for wrong in ({"sync_every": 0}, {"sync_every": 2.5}, {"outer_momentum": 1.0}, {"outer_lr": 0.0},
                  {"fragments": 9}, {"delay": 8}, {"mixing": 1.5}, {"moments_every": -1}):  # fmt: skip
        with pytest.raises(UserError, match=f"Local.{next(iter(wrong))}=.*cannot be used"):
            hvd.Local(**wrong)
    for options in ({"op": hvd.Sum}, {"compression": hvd.Compression.fp16}):
        with pytest.raises(ValueError, match=rf"(?s){next(iter(options))}.*local.*\n.*sync"):
            hvd.DistributedOptimizer(torch.optim.SGD([torch.zeros(3)], lr=1.0), exchange="local", **options)
    weights, optimizer = _torch_optimizer("refused", "local")
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(weights[0].sum()).backward()
    with pytest.raises(hvd.UsageError, match=r"equally many updates of all ranks(.|\n)*bfloat16"):
        scaler.step(optimizer)
    optimizer.step()
    with pytest.raises(hvd.UsageError, match=r"(?s)updates of a local exchange.*drain\(\)"):
        hvd.broadcast_optimizer_state(optimizer, 0)
    state = optimizer.in_flight()
    optimizer.drain()
    for other in ("pipelined", "majority", "sync"):
        with pytest.raises(hvd.UsageError, match="found updates of a local exchange"):
            _torch_optimizer(f"refused.{other}", other)[1].load_in_flight(state)
    hvd.broadcast_optimizer_state(optimizer, 0)


@ranks(2, env={"PACELINE_EXCHANGE": "local", "PACELINE_SYNC_EVERY": "4"}, hvd="horovod.torch")
def test_one_variable_makes_a_script_of_horovod_local(rank: int, size: int, hvd: Any) -> None:
    weights = [torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in SHAPES]
    named = [(f"script.{index}", weight) for index, weight in enumerate(weights)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=RATE, momentum=MOMENTUM), named)
    for _ in range(8):
        _torch_update(rank, weights, optimizer)
    for weight, wanted in zip(weights, _played(size, 8, sync_every=4)[rank], strict=True):
        np.testing.assert_allclose(weight.detach().numpy(), wanted, rtol=1e-12)


def _keras_update(rank: int, optimizer: Any, weights: list[Any], compiled: bool) -> Callable[[], Any]:
    targets = [keras.ops.convert_to_tensor(one.astype(np.float32)) for one in _targets(rank)]

    def update() -> None:
        optimizer.apply_gradients([(one - target, one) for one, target in zip(weights, targets, strict=True)])

    if compiled:
        optimizer.build(weights)
        return tf.function(update)
    return update


@keras_ranks(2, more=(3,), hvd="paceline.keras")
def test_keras(rank: int, size: int, hvd: Any) -> None:
    for compiled, (number, choices) in itertools.product(compiled_or_not(), enumerate(CHOICES)):
        label = f"keras{number}{compiled}"
        weights = [keras.Variable(np.zeros(shape, np.float32)) for shape in SHAPES]
        sgd = keras.optimizers.SGD(RATE, momentum=MOMENTUM)
        optimizer = hvd.DistributedOptimizer(sgd, name=label, exchange=hvd.Local(**choices))
        optimizer.build(weights)
        update = _keras_update(rank, optimizer, weights, compiled)
        for _ in range(5):
            update()
        state, values = pickle.dumps(optimizer.in_flight()), [numpy(one) for one in [*weights, *optimizer.variables]]
        for _ in range(STEPS - 5):
            update()
        assert optimizer.drain() == 0
        # Keras' velocity has the rate in it, which changes nothing while the rate is the same.
        for weight, wanted in zip(weights, _played(size, STEPS, **choices)[rank], strict=True):
            np.testing.assert_allclose(numpy(weight), wanted, rtol=2e-5, atol=1e-5, err_msg=label)
        same_everywhere(weights, f"{label}.same")
        after = [numpy(weight) for weight in weights]
        for one, value in zip([*weights, *optimizer.variables], values, strict=True):
            one.assign(value)
        optimizer.load_in_flight(pickle.loads(state))
        for _ in range(STEPS - 5):
            update()
        optimizer.drain()
        for weight, value in zip(weights, after, strict=True):
            # Which tensors are added up in one message, and so in which order three numbers are, is not the same twice.
            np.testing.assert_allclose(numpy(weight), value, rtol=0 if size == 2 else 1e-5, err_msg=label)


@ranks(2, env=TENSORFLOW, hvd="paceline.tensorflow")
def test_tapes_say_why_they_cannot(rank: int, size: int, hvd: Any) -> None:
    with tf.GradientTape() as tape:
        pass
    with pytest.raises(UserError, match=r"does not know when the model is updated(.|\n)*hvd.average_variables"):
        hvd.DistributedGradientTape(tape, exchange="local")


@ranks(2, hvd="paceline.torch")
def test_torch_frozen_types_and_unused_parameters(rank: int, size: int, hvd: Any) -> None:
    """Types without a mean stay as they are while frozen; a parameter without a gradient is not moved."""
    kinds = ("int8", "uint8", "bool", "int64", "float8_e4m3fn", "complex64", "bfloat16", "float64")
    outer = hvd.Local(sync_every=2, outer_momentum=0.5)
    exchanges: list[Any] = [hvd.Local(sync_every=2), outer, hvd.Partial(quorum=size, sync_every=2)]
    for exchange in exchanges:
        frozen = [torch.nn.Parameter(torch.ones(3).to(getattr(torch, kind)), requires_grad=False) for kind in kinds]
        used, unused = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
        held = torch.optim.AdamW([used, unused, *frozen], lr=0.1, weight_decay=0.1)
        named = [(f"types.{exchange}.{number}", one) for number, one in enumerate((used, unused, *frozen))]
        optimizer = hvd.DistributedOptimizer(held, named, exchange=exchange)
        for _ in range(5):
            optimizer.zero_grad()
            (used * (1.0 + rank)).sum().backward()
            optimizer.step()
        optimizer.drain()
        assert all(bool((one.float() == 1.0).all()) for one in frozen if not one.is_complex())
        if isinstance(exchange, hvd.Local):
            assert unused.grad is None and unused.tolist() == [1.0] * 3
    frozen[5].requires_grad_(True)
    with pytest.raises(hvd.UsageError, match=rf"(?s)Rank {rank}.*types.*7.*complex64.*freeze"):
        optimizer._exchange.around.average(optimizer._weights)
