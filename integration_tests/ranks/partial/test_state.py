"""Runs with partial rounds that are saved and go on: send buffers and missed results are neither lost nor doubled."""

from __future__ import annotations

import pickle
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch

from integration_tests.support.keras_worlds import keras_ranks, numpy
from integration_tests.support.ranks import ranks
from paceline.errors import UserError

SHAPES = [(3,), (2, 5)]


def _slope(rank: int, step: int) -> float:
    return float(1 + 100 * rank + step)


def _sum(size: int, steps: int) -> float:
    return sum(_slope(rank, step) for rank in range(size) for step in range(steps))


def _model(values: Any = None) -> tuple[Any, Any]:
    """Two weights of equal gradients, one for each kind of name: alone and in a group."""
    import paceline.torch as hvd

    weights = [torch.nn.Parameter(torch.zeros(3, dtype=torch.float64)) for _ in range(3)]
    if values is not None:
        for weight, value in zip(weights, values):
            weight.data.copy_(value)
    names = [(f"saved.{n}", weight) for n, weight in enumerate(weights)]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(weights, lr=1.0), names, op=hvd.Sum, exchange="solo", groups=[weights[1:]]
    )
    return weights, optimizer


def _step(weights: list[Any], optimizer: Any, slope: float) -> None:
    optimizer.zero_grad()
    sum((weight * slope).sum() for weight in weights).backward()
    optimizer.step()


def _uneven(rank: int, weights: list[Any], optimizer: Any, steps: range) -> None:
    """Each rank makes its steps while the others wait elsewhere, so that nearly all rounds are missed by most."""
    import paceline.torch as hvd

    for turn in range(hvd.size()):
        for step in steps:
            if turn == rank:
                _step(weights, optimizer, _slope(rank, step))
        hvd.barrier()


@ranks(3, more=(2,), fresh=True, hvd="paceline.torch")
def test_run_that_goes_on_counts_everything_once(rank: int, size: int, hvd: Any) -> None:
    weights, optimizer = _model()
    _step(weights, optimizer, _slope(rank, 0))
    hvd.barrier()
    _uneven(rank, weights, optimizer, range(1, 6))
    saved = pickle.dumps(([weight.detach().clone() for weight in weights], optimizer.state_dict()))
    hvd.barrier()
    assert "paceline_in_flight" in pickle.loads(saved)[1]
    # Updates after saving are dropped, once with a new world and once without.
    _uneven(rank, weights, optimizer, range(6, 8))
    for again in (True, False):
        if again:
            hvd.shutdown()
            hvd.init()
        values, state = pickle.loads(saved)
        weights, optimizer = _model(values)
        optimizer.load_state_dict(state)
        _step(weights, optimizer, _slope(rank, 6))  # an optimizer's first step waits for all ranks
        _uneven(rank, weights, optimizer, range(7, 9))
        assert optimizer.drain() <= 1
        for weight in weights:
            assert weight.tolist() == [-_sum(size, 9)] * 3
        assert "paceline_in_flight" not in optimizer.state_dict()
    hvd.shutdown()


@ranks(2, fresh=True, hvd="paceline.torch")
def test_drain_right_after_loading_brings_everything_out(rank: int, size: int, hvd: Any) -> None:
    weights, optimizer = _model()
    _step(weights, optimizer, _slope(rank, 0))
    hvd.barrier()
    _uneven(rank, weights, optimizer, range(1, 4))
    state, values = optimizer.state_dict(), [weight.detach().clone() for weight in weights]
    hvd.shutdown()
    hvd.init()
    weights, optimizer = _model(values)
    optimizer.load_state_dict(state)
    assert optimizer.drain() <= 1
    for weight in weights:
        assert weight.tolist() == [-_sum(size, 4)] * 3
    hvd.shutdown()


@ranks(2, fresh=True, hvd="paceline.torch")
def test_states_that_do_not_fit_are_refused_everywhere(rank: int, size: int, hvd: Any) -> None:
    weights, optimizer = _model()
    _step(weights, optimizer, 1.0)
    mine = optimizer.state_dict()
    hvd.barrier()
    if rank == 1:
        _step(weights, optimizer, 1.0)
    hvd.barrier()
    # Rank 0 saved before that step's round, rank 1 after it.
    with pytest.raises(UserError, match=r"(?s)ranks differ.*between two barriers"):
        optimizer.load_state_dict(mine if rank == 0 else optimizer.state_dict())
    with pytest.raises(UserError, match=r"(?s)ranks differ.*another rank's state are from \[.*0\] to \[.*1\]"):
        optimizer.load_state_dict(hvd.broadcast_object(mine, root_rank=0))
    # A file that is foreign to all of them would be counted on each.
    with pytest.raises(UserError, match=rf"(?s)rank 3 of 4, loaded by rank {rank} of 2.*\n.*each rank"):
        optimizer.load_state_dict({**mine, "paceline_in_flight": {**mine["paceline_in_flight"], "rank": 3, "ranks": 4}})
    plain = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=1.0), exchange="sync")
    with pytest.raises(hvd.UsageError, match="found send buffers of a partial exchange"):
        plain.load_state_dict(mine)
    late = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=1.0), exchange="pipelined")
    with pytest.raises(hvd.UsageError, match="found send buffers of a partial exchange"):
        late.load_state_dict(mine)
    hvd.shutdown()


def _one_after_the_other(rank: int, size: int, meet: Any, update: Any, steps: range) -> None:
    for turn in range(size):
        for step in steps:
            if turn == rank:
                update(_slope(rank, step))
        meet()


@keras_ranks(2, hvd="paceline.keras")
def test_keras_run_that_goes_on_counts_everything_once(rank: int, size: int, hvd: Any) -> None:
    def meet() -> None:  # TensorFlow's Horovod has no barrier
        hvd.allgather_object(0, name="kept.meet")

    weights = [keras.Variable(np.zeros(shape, np.float32)) for shape in SHAPES]
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), name="kept", op=hvd.Sum, exchange="solo")
    optimizer.build(weights)

    def update(slope: float) -> None:
        optimizer.apply_gradients([(keras.ops.zeros(one.shape) + slope, one) for one in weights])

    update(_slope(rank, 0))
    _one_after_the_other(rank, size, meet, update, range(1, 4))
    saved = pickle.dumps(([numpy(one) for one in weights], optimizer.in_flight()))
    meet()
    _one_after_the_other(rank, size, meet, update, range(4, 6))
    values, state = pickle.loads(saved)
    assert state is not None
    for one, value in zip(weights, values):
        one.assign(value)
    optimizer.load_in_flight(state)
    _one_after_the_other(rank, size, meet, update, range(4, 7))
    assert optimizer.drain() <= 1
    assert optimizer.in_flight() is None
    for one in weights:
        assert numpy(one).tolist() == np.full(one.shape, -_sum(size, 7)).tolist()


@ranks(2, env={"KERAS_BACKEND": "tensorflow", "TF_NUM_INTRAOP_THREADS": "1"}, hvd="paceline.tensorflow")
def test_tape_that_goes_on_counts_everything_once(rank: int, size: int, hvd: Any) -> None:
    weights = [tf.Variable(tf.zeros(shape)) for shape in SHAPES]
    optimizer = keras.optimizers.SGD(1.0)
    optimizer.build(weights)

    def meet() -> None:
        hvd.allgather_object(0)

    def step() -> Any:
        @tf.function
        def update(slope: Any) -> None:
            with tf.GradientTape() as tape:
                loss = sum(tf.reduce_sum(one * slope) for one in weights)
            tape = hvd.DistributedGradientTape(tape, op=hvd.Sum, name="kept", exchange="solo")
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))

        return lambda slope: update(tf.constant(slope))

    update = step()
    update(_slope(rank, 0))
    _one_after_the_other(rank, size, meet, update, range(1, 4))
    values, state = [one.numpy() for one in weights], hvd.tape_in_flight(name="kept")
    assert state is not None
    meet()
    _one_after_the_other(rank, size, meet, update, range(4, 6))
    for one, value in zip(weights, values):
        one.assign(value)
    hvd.load_tape_in_flight(state, name="kept")
    update = step()
    update(_slope(rank, 4))  # compiled where all ranks take part
    _one_after_the_other(rank, size, meet, update, range(5, 7))
    assert hvd.drain_tape(optimizer, weights, name="kept") <= 1
    assert hvd.tape_in_flight(name="kept") is None
    for one in weights:
        assert one.numpy().tolist() == np.full(one.shape, -_sum(size, 7)).tolist()
