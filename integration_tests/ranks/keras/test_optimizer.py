"""paceline.keras.DistributedOptimizer: every update is the wrapped optimizer's own, made with averaged gradients.

The reference is always the plain optimizer, given the average that a rank computes for itself: gradients are closed
formulas of rank, step and place.
"""

from __future__ import annotations

import contextlib
import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import optimizers as o

import paceline.keras as hvd
from integration_tests.support.keras_steps import SHAPES, apply, averages, gradient, gradients, variables_from_one
from integration_tests.support.keras_worlds import assert_near, keras_ranks, numpy, same_everywhere
from paceline.errors import UserError


def _compare(rank: int, size: int, name: str, make: Callable[[], Any], steps: int = 4, **choices: Any) -> None:
    """Do the same steps distributed and alone; assert that variables are as near as rounding lets them."""
    plain, expected = make(), variables_from_one()
    wrapped, variables = hvd.DistributedOptimizer(make(), name=name, **choices), variables_from_one()
    for step in range(steps):
        apply(wrapped, variables, gradients(rank, step))
        apply(plain, expected, averages(size, step))
    assert_near(variables, expected, name)
    same_everywhere([*variables, *wrapped.variables], f"{name}.same")


def _optimizers() -> dict[str, Callable[[], Any]]:
    decay = keras.optimizers.schedules.ExponentialDecay(0.1, decay_steps=2, decay_rate=0.5, staircase=True)
    return {
        "sgd": lambda: o.SGD(0.1, momentum=0.9, nesterov=True),
        "adam": lambda: o.Adam(0.05),
        "adamw": lambda: o.AdamW(0.05, weight_decay=0.1),
        "rmsprop": lambda: o.RMSprop(0.05, momentum=0.5),
        "clipnorm": lambda: o.SGD(0.1, clipnorm=1.0),
        "global_clipnorm": lambda: o.SGD(0.1, global_clipnorm=1.0),
        "clipvalue": lambda: o.SGD(0.1, clipvalue=0.8),
        "ema": lambda: o.SGD(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
        "loss_scale_factor": lambda: o.SGD(0.1, loss_scale_factor=8.0),
        "schedule": lambda: o.SGD(decay),
        "keras_accumulates": lambda: o.Adam(0.05, gradient_accumulation_steps=2, clipnorm=1.0),
    }


@keras_ranks(2)
def test_choices_of_the_wrapper(rank: int, size: int) -> None:
    def adam() -> Any:
        return keras.optimizers.Adam(0.05)

    _compare(rank, size, "predivide", adam, gradient_predivide_factor=3.0)
    _compare(rank, size, "groups", adam, groups=2)
    # Values that half precision holds exactly, divided by a power of two.
    packed = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), name="fp16", compression=hvd.Compression.fp16)
    variables = [keras.Variable(np.zeros(5, np.float32))]
    apply(packed, variables, [np.full(5, 0.5 + rank, np.float32)])
    np.testing.assert_array_equal(numpy(variables[0]), np.full(5, -(0.5 + (size - 1) / 2), np.float32))
    # The sum.
    summed = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), name="sum", op=hvd.Sum)
    variables = [keras.Variable(np.zeros(3, np.float32))]
    apply(summed, variables, [np.array([1.0, 10.0, 100.0], np.float32) * (rank + 1)])
    np.testing.assert_array_equal(numpy(variables[0]), -np.array([1.0, 10.0, 100.0]) * size * (size + 1) / 2)
    # Groups of named variables, the last one in none; frozen variables have no gradient.
    variables = variables_from_one()
    grouped = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), name="lists", groups=[[variables[2], variables[0]]])
    apply(grouped, variables, [gradient(rank, 0, 0), None, gradient(rank, 0, 2)])
    np.testing.assert_allclose(numpy(variables[0]), 1 - averages(size, 0)[0], rtol=1e-6)
    np.testing.assert_array_equal(numpy(variables[1]), np.full((2, 5), 2.0))
    np.testing.assert_allclose(numpy(variables[2]), 3 - averages(size, 0)[2], rtol=1e-6)


@keras_ranks(2)
def test_local_variables_stay_on_their_rank(rank: int, size: int) -> None:
    for scale in (True, False):
        variables = [keras.Variable(np.zeros(3, np.float32)), keras.Variable(np.zeros(4, np.float32))]
        wrapped = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), name=f"local{scale}", scale_local_gradients=scale)
        wrapped.register_local_var(variables[0])
        apply(wrapped, variables, [np.full(3, rank + 1.0, np.float32), np.full(4, rank + 1.0, np.float32)])
        own = (rank + 1.0) / size if scale else rank + 1.0
        np.testing.assert_allclose(numpy(variables[0]), np.full(3, -own), rtol=1e-6)
        np.testing.assert_allclose(numpy(variables[1]), np.full(4, -(size + 1) / 2), rtol=1e-6)


@keras_ranks(2)
def test_the_wrapper_counts_backward_passes(rank: int, size: int) -> None:
    passes = 3
    for average in (True, False):
        name = f"passes.{average}"
        counted: dict[str, Any] = {"backward_passes_per_step": passes, "average_aggregated_gradients": average}
        wrapped = hvd.DistributedOptimizer(keras.optimizers.Adam(0.05, clipnorm=1.0), name=name, **counted)
        plain = keras.optimizers.Adam(0.05, clipnorm=1.0)
        variables, expected = variables_from_one(), variables_from_one()
        for update in range(2):
            before = [numpy(variable) for variable in variables]
            total = [np.zeros(shape, np.float32) for shape in SHAPES]
            for turn in range(passes):
                for old, variable in zip(before, variables, strict=True):
                    np.testing.assert_array_equal(old, numpy(variable))
                step = update * passes + turn
                apply(wrapped, variables, gradients(rank, step))
                for place in range(len(SHAPES)):
                    total[place] = total[place] + averages(size, step)[place]
            apply(plain, expected, [value / passes if average else value for value in total])
            assert_near(variables, expected, name, atol=0)
        assert int(numpy(wrapped.iterations)) == 2 * passes
        same_everywhere([*variables, *wrapped.variables], f"{name}.same")


@keras_ranks(2)
def test_keras_own_accumulation_averages_only_what_is_applied(rank: int, size: int) -> None:
    optimizer = keras.optimizers.SGD(1.0, gradient_accumulation_steps=3)
    wrapped = hvd.DistributedOptimizer(optimizer, name="kerasaccumulates")
    reduce, calls = wrapped._distributed.reduce, []

    class Counting:
        def __call__(self, *args: Any) -> Any:
            calls.append(int(numpy(wrapped._iterations)))
            return reduce(*args)

    wrapped._distributed.reduce = Counting()
    variables = variables_from_one()
    for step in range(6):
        apply(wrapped, variables, gradients(rank, step))
    assert calls == [2, 5], "gradients travelled in steps that do not update"
    same_everywhere([*variables, *wrapped.variables], "kerasaccumulates.same")


@keras_ranks(2)
def test_overflow_on_one_rank_skips_the_same_step_on_all(rank: int, size: int) -> None:
    scaling = keras.optimizers.LossScaleOptimizer
    for inside in (True, False):
        name = f"overflow.{inside}"
        inner: Any = keras.optimizers.Adam(0.05)
        if inside:
            wrapped = scaling(hvd.DistributedOptimizer(inner, name=name), initial_scale=8.0)
        else:
            wrapped = hvd.DistributedOptimizer(scaling(inner, initial_scale=8.0), name=name)
        assert isinstance(wrapped, scaling)
        plain, variables, expected = keras.optimizers.Adam(0.05), variables_from_one(), variables_from_one()
        for step in range(4):
            scale = 8.0 if step <= 1 else 4.0
            scaled = [scale * gradient(rank, step, place) for place in range(len(SHAPES))]
            if step == 1 and rank == size - 1:
                scaled[1][0, 3] = np.inf
            apply(wrapped, variables, scaled)
            if step != 1:
                apply(plain, expected, averages(size, step))
            assert float(numpy(wrapped.dynamic_scale)) == (8.0 if step == 0 else 4.0)
            assert_near(variables, expected, f"{name} step {step}", atol=0)
        assert int(numpy(wrapped.iterations)) == 3
        same_everywhere([*variables, *wrapped.variables], f"{name}.same")


@keras_ranks(2)
def test_the_wrapper_is_the_optimizer(rank: int, size: int) -> None:
    optimizer = keras.optimizers.Adam(0.05, clipnorm=2.0)
    variables = variables_from_one()
    apply(optimizer, variables, [np.zeros(shape, np.float32) for shape in SHAPES])
    wrapped = hvd.DistributedOptimizer(optimizer, name="face")
    assert isinstance(wrapped, keras.optimizers.Adam)
    assert type(wrapped).__name__ == type(optimizer).__name__
    assert wrapped.get_config() == optimizer.get_config()
    saved = keras.optimizers.serialize(wrapped)
    assert (saved["module"], saved["class_name"]) == ("keras.optimizers", "Adam")
    assert type(keras.optimizers.deserialize(saved)) is type(keras.optimizers.Adam())
    # Both optimizers share one state: earlier updates stay, and neither drifts.
    assert int(numpy(wrapped.iterations)) == 1
    wrapped.learning_rate = 0.25
    assert float(numpy(optimizer.learning_rate)) == 0.25
    assert [id(one) for one in wrapped.variables] == [id(one) for one in optimizer.variables]
    # Copies and pickles are the plain optimizer.
    for plain in (copy.deepcopy(wrapped), pickle.loads(pickle.dumps(wrapped))):
        assert type(plain) is type(optimizer)
        assert plain.get_config() == optimizer.get_config()
    # Another one made from the configuration is distributed too.
    other = type(wrapped).from_config({**wrapped.get_config(), "learning_rate": 0.25})
    assert other.get_config() == wrapped.get_config()
    apply(other, variables, gradients(rank, 0))
    same_everywhere([*variables, *other.variables], "face.same")


@keras_ranks(2)
def test_what_cannot_work_is_refused_with_a_remedy(rank: int, size: int) -> None:
    def refused(pattern: str, action: Callable[[], Any]) -> None:
        with pytest.raises(UserError, match=pattern):
            action()

    sgd = keras.optimizers.SGD
    wrapped = hvd.DistributedOptimizer(sgd(), name="refusals")
    refused("wrapped by DistributedOptimizer already", lambda: hvd.DistributedOptimizer(wrapped))
    refused("str, which is not an optimizer", lambda: hvd.DistributedOptimizer("adam"))
    refused("op=", lambda: hvd.DistributedOptimizer(sgd(), op=hvd.Max))
    refused("groups=-1", lambda: hvd.DistributedOptimizer(sgd(), groups=-1))
    refused("backward_passes_per_step=0", lambda: hvd.DistributedOptimizer(sgd(), backward_passes_per_step=0))
    refused(
        "gradient_predivide_factor=2.0 needs op=Average",
        lambda: hvd.DistributedOptimizer(sgd(), op=hvd.Sum, gradient_predivide_factor=2.0),
    )
    twice = hvd.DistributedOptimizer(sgd(gradient_accumulation_steps=2), backward_passes_per_step=2)
    refused(
        "gradient_accumulation_steps=2", lambda: apply(twice, variables_from_one(), [np.zeros(s, "f4") for s in SHAPES])
    )
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    refused("jit_compile=True", lambda: model.compile(wrapped, loss="mse", jit_compile=True))
    refused("no list of all variables", lambda: hvd.broadcast_global_variables(0))


@keras_ranks(2)
def test_different_models_are_reported_on_every_rank(rank: int, size: int) -> None:
    variable = keras.Variable(np.zeros(3 + rank, np.float32))
    with pytest.raises(UserError, match=r"Rank 1 has the variable .* shape \(4,\), rank 0 has float32 of shape \(3,\)"):
        hvd.broadcast_variables([variable], root_rank=0, name="differ")
    with pytest.raises(UserError, match="Rank 1 has 1 variables, rank 0 has 0"):
        hvd.broadcast_variables([variable][:rank], root_rank=0, name="number")


@keras_ranks(2)
def test_operations(rank: int, size: int) -> None:
    ones = np.ones(3, np.float32)
    np.testing.assert_allclose(numpy(hvd.allreduce(ones * rank, name="op.mean")), ones * (size - 1) / 2)
    np.testing.assert_allclose(numpy(hvd.allreduce(ones, average=False)), ones * size)
    np.testing.assert_allclose(numpy(hvd.allgather(np.full(rank + 1, rank, np.float32))), [0, 1, 1])
    np.testing.assert_allclose(numpy(hvd.broadcast(ones * rank, root_rank=1)), ones)
    parts = hvd.reducescatter(np.arange(4, dtype=np.float32) * (rank + 1), op=hvd.Sum)
    np.testing.assert_allclose(numpy(parts), np.arange(4)[2 * rank : 2 * rank + 2] * 3)
    assert set(hvd.__all__) <= set(dir(hvd)) and all(hasattr(hvd, name) for name in hvd.__all__)


@keras_ranks(3, more=(2,))
def test_equals_the_plain_optimizer_on_averaged_gradients(rank: int, size: int) -> None:
    for name, make in _optimizers().items():
        if size == 2 or name in ("adam", "global_clipnorm"):
            _compare(rank, size, f"plain.{name}", make)


@keras_ranks(3)
def test_a_process_set_averages_among_its_ranks(rank: int, size: int) -> None:
    pair = hvd.ProcessSet([0, 2])
    hvd.shutdown()
    hvd.init(process_sets=[pair])
    try:
        wrapped = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), name="pair", process_set=pair)
        variables = [keras.Variable(np.zeros(3, np.float32))]
        apply(wrapped, variables, [np.full(3, 10.0**rank, np.float32)])
        expected = 10.0 if rank == 1 else (1 + 100) / 2
        np.testing.assert_allclose(numpy(variables[0]), np.full(3, -expected), rtol=1e-6)
        hvd.allreduce(np.zeros(1, np.float32), name="pair.done")  # a rank that leaves early shuts down the others
    finally:
        hvd.shutdown()
        hvd.init()


@pytest.mark.parametrize("scaled", [False, True])
@keras_ranks(2)
def test_an_optimizer_that_was_not_wrapped_is_reported(rank: int, size: int, scaled: bool) -> None:
    optimizer: Any = keras.optimizers.SGD(0.1)
    optimizer = keras.optimizers.LossScaleOptimizer(optimizer) if scaled else optimizer
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        for compiled in (optimizer, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))):
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
            model.compile(compiled, loss="mse")
            callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
            model.fit(np.ones((4, 3)), np.ones((4, 1)), callbacks=callbacks, verbose=0)
    assert said.getvalue().count(f"rank {rank}: expected a wrapped optimizer") == 1, said.getvalue()


@pytest.mark.parametrize("scaled", [False, True])
@keras_ranks(2)
def test_an_optimizer_that_is_wrapped_after_a_fit_averages_from_then_on(rank: int, size: int, scaled: bool) -> None:
    data = np.random.default_rng(1).normal(size=(12 * size, 3)).astype("float32")
    x, y = data, data[:, :1] * 2

    def model() -> Any:
        keras.utils.set_random_seed(1)
        made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        optimizer: Any = keras.optimizers.SGD(0.1, momentum=0.9)
        made.compile(keras.optimizers.LossScaleOptimizer(optimizer) if scaled else optimizer, loss="mse")
        made.fit(x, y, batch_size=len(x), epochs=2, verbose=0, shuffle=False)  # the same on all ranks
        return made

    plain, found = model(), model()
    plain.fit(x, y, batch_size=len(x), epochs=3, verbose=0, shuffle=False)
    found.optimizer = hvd.DistributedOptimizer(found.optimizer)
    own = slice(12 * rank, 12 * (rank + 1))
    found.fit(x[own], y[own], batch_size=12, epochs=3, verbose=0, shuffle=False)
    assert_near(found.weights, plain.weights, rtol=0, atol=1e-5)
