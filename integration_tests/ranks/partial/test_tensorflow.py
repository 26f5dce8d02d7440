"""Partial allreduce of TensorFlow tensors, eagerly and in tf.function: as in PyTorch, and named by the user."""

from __future__ import annotations

import time
from typing import Any

import pytest
import tensorflow as tf

import paceline.tensorflow as hvd
from integration_tests.support.more import more
from integration_tests.support.partial import CHOICES, WRONG_QUORA, come_late, conserve
from integration_tests.support.ranks import ranks, run_ranks
from paceline.errors import UserError

# One thread for operations: these ranks share few processors.
TENSORFLOW = {"KERAS_BACKEND": "tensorflow", "TF_NUM_INTRAOP_THREADS": "1"}


def _conserve(
    rank: int, size: int, label: str, steps: int, choices: dict[str, Any], pauses: float, compiled: bool
) -> Any:
    def eagerly(call: Any) -> Any:
        def run(calls: Any) -> Any:
            pending = [call(mine, name, op=hvd.Sum, **choices) for name, mine in calls]
            return [one.wait() for one in pending]

        return run

    @tf.function
    def step(contributions: dict[str, Any]) -> Any:
        return {name: hvd.partial_allreduce(mine, name, op=hvd.Sum, **choices) for name, mine in contributions.items()}

    def in_graph(calls: Any) -> Any:
        results = step({name: tf.constant(mine) for name, mine in sorted(calls)})
        return [results[name] for name, _ in calls]

    exchange = in_graph if compiled else eagerly(hvd.partial_allreduce_async)
    return conserve(rank, size, f"{label}.{compiled}", steps, pauses, hvd, exchange, eagerly(hvd.flush_partial))


@pytest.mark.parametrize("size", [more(2), 3])
@pytest.mark.parametrize("compiled", [more(False, id="eager"), pytest.param(True, id="graph")])
def test_everything_contributed_arrives_once(size: int, compiled: bool) -> None:
    for label, choices in CHOICES.items():
        results = run_ranks(_conserve, size, label, 60, choices, 0.5, compiled, env=TENSORFLOW)
        assert all(one == results[0] for one in results)


# Size and rounds.
LONG = [pytest.param(4, 60, marks=pytest.mark.more)]
LONG += [pytest.param(size, 2000, marks=pytest.mark.soak) for size in (2, 3, 4, 7, 8)]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("size", "rounds"), LONG)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "graph"])
def test_everything_contributed_arrives_once_in_many_rounds(size: int, rounds: int, compiled: bool) -> None:
    for label, choices in CHOICES.items():
        run_ranks(_conserve, size, f"long.{label}", rounds, choices, 0.3, compiled, env=TENSORFLOW, timeout_s=600)


@ranks(3, more=(2,), env=TENSORFLOW)
def test_all_ranks_as_quorum_is_an_allreduce(rank: int, size: int) -> None:
    for step in range(10):
        mine = tf.random.stateless_normal([3, 7], [step, rank])
        whole = hvd.allreduce(mine, name=f"whole.{step}")
        part, fresh = hvd.partial_allreduce(mine, "whole.partial", quorum=size)
        assert part.dtype == mine.dtype and part.shape == mine.shape
        tf.debugging.assert_near(part, whole, 1e-6, 1e-7)
        assert fresh.dtype == tf.int32 and fresh.shape == () and int(fresh) == size


@ranks(3, more=(2,), env=TENSORFLOW)
def test_late_rank_gets_what_it_missed_and_brings_two_contributions(rank: int, size: int) -> None:
    come_late(rank, size, hvd, lambda value: hvd.partial_allreduce(tf.fill([3], value), "late", quorum="solo"))


@ranks(2, env=TENSORFLOW)
def test_graph_makes_every_call_under_its_name(rank: int, size: int) -> None:
    """Constants, unused results, repeated names and loops are counted as calls, too."""
    names = hvd.exchange_stats().names
    choices = {"quorum": size, "op": hvd.Sum}

    @tf.function
    def step(turns: Any) -> Any:
        ones = tf.ones([2])
        hvd.partial_allreduce(ones, "unused", **choices)
        once, _ = hvd.partial_allreduce(ones, "scope/repeated:0", **choices)
        twice, fresh = hvd.partial_allreduce(once, "scope/repeated:0", **choices)
        total = tf.zeros([2])
        for _ in tf.range(turns):
            total += hvd.partial_allreduce(ones, "other/repeated:0", **choices)[0]
        return twice, fresh, total

    for turns in (1, 2, 3):
        rounds = hvd.exchange_stats().rounds
        twice, fresh, total = step(tf.constant(turns))
        assert twice.numpy().tolist() == [4.0, 4.0] and int(fresh) == 2
        assert total.numpy().tolist() == [2.0 * turns] * 2
        assert hvd.exchange_stats().rounds - rounds == 3 + turns
    assert hvd.exchange_stats().names - names == 3
    # The same channel, eagerly; also where functions are debugged by running them eagerly.
    tf.config.run_functions_eagerly(True)
    try:
        assert int(hvd.partial_allreduce(tf.ones([2]), "unused", **choices)[1]) == 2
    finally:
        tf.config.run_functions_eagerly(False)
    assert hvd.exchange_stats().names - names == 3


@ranks(2, env=TENSORFLOW)
def test_shapes_and_types(rank: int, size: int) -> None:
    for dtype in (tf.float16, tf.float32, tf.float64, tf.int32, tf.int64):
        for shape in ((), (0,), (2, 3)):
            tensor = tf.cast(tf.fill(shape, rank + 1), dtype)
            name = f"types.{dtype.name}.{shape}"
            result, fresh = hvd.partial_allreduce(tensor, name, quorum=size, op=hvd.Sum)
            assert result.dtype == dtype and tuple(result.shape) == shape and int(fresh) == size
            assert result.numpy().ravel().tolist() == [3.0] * int(tf.size(tensor))
    variable = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        result, _ = hvd.partial_allreduce(variable, "types.variable", quorum=size)
        found = tf.reduce_sum(result + variable)
    assert tape.gradient(found, variable).numpy().tolist() == [1.0, 1.0]

    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def unknown(tensor: Any) -> Any:
        result, fresh = hvd.partial_allreduce(tensor, "types.unknown", quorum=size)
        assert result.shape.as_list() == [None, 2] and fresh.shape == ()
        return result

    assert unknown(tf.ones([3, 2])).shape == (3, 2)


@ranks(2, env=TENSORFLOW)
def test_asynchronous_call_leaves_the_caller_alone(rank: int, size: int) -> None:
    hvd.allgather_object(None, name="alone.before")
    if rank == 0:
        pending = hvd.partial_allreduce_async(tf.ones([2]), "alone", quorum=size)
        time.sleep(0.2)
        assert not pending.done()
        hvd.allgather_object(None, name="alone.meanwhile")
        result, fresh = pending.wait()
        assert pending.done() and result.numpy().tolist() == [1.0, 1.0] and int(fresh) == size
    else:
        hvd.allgather_object(None, name="alone.meanwhile")
        hvd.partial_allreduce(tf.ones([2]), "alone", quorum=size)


@ranks(2, env=TENSORFLOW)
def test_errors_name_both_sides(rank: int, size: int) -> None:
    one = tf.ones([4])
    for wrong in WRONG_QUORA:
        with pytest.raises(UserError, match="quorum"):
            hvd.partial_allreduce(one, "wrong.quorum", quorum=wrong)
    with pytest.raises(UserError, match="from 1 to 2"):
        hvd.partial_allreduce(one, "wrong.quorum", quorum=3)
    with pytest.raises(ValueError, match=r"Average or hvd.Sum"):
        hvd.partial_allreduce_async(one, "wrong.op", op=hvd.Max)
    with pytest.raises(ValueError, match=r"wrong.type.*dense tensor of bool.\nUse.*float32"):
        hvd.partial_allreduce(tf.constant([True]), "wrong.type", op=hvd.Sum)
    with pytest.raises(ValueError, match=r"wrong.type.*IndexedSlices tensor of float32"):
        hvd.partial_allreduce(tf.IndexedSlices(one, tf.range(4)), "wrong.type")
    with pytest.raises(ValueError, match=r"cannot average int32"):
        hvd.partial_allreduce(tf.range(4), "wrong.type")
    with pytest.raises(ValueError, match=r"name=''"):
        hvd.partial_allreduce(one, "")
    hvd.partial_allreduce(one, "wrong.shape", quorum="solo")
    with pytest.raises(tf.errors.OpError, match=r"(?s)wrong.shape: expected float32 \[5\].*found float32 \[8\]"):
        hvd.partial_allreduce(tf.ones([7]), "wrong.shape", quorum="solo")
    with pytest.raises(tf.errors.OpError, match=r"(?s)wrong.shape: expected float32 \[5\].*found float64 \[5\]"):
        hvd.partial_allreduce_async(tf.ones([4], tf.float64), "wrong.shape", quorum="solo").wait()
    with pytest.raises(ValueError, match=r"found others"):
        hvd.partial_allreduce(one, "wrong.shape", quorum=2)
