"""Keras on PyTorch: in Keras' own train_step messages begin during the backward pass, and results stay the same."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest

from integration_tests.support.ranks import ranks

BATCH, STEPS = 4, 5
ENV = {"KERAS_BACKEND": "torch"}


def _data(rank: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    own = np.random.default_rng(rank)
    return own.normal(size=(BATCH * STEPS, 3)), own.normal(size=(BATCH * STEPS, 1))


def _model(kind: Any = None) -> Any:
    import keras

    keras.utils.set_random_seed(5)
    inputs = keras.Input((3,))
    middle = keras.layers.Dense(7, "tanh")(inputs)
    return (kind or keras.Model)(inputs, keras.layers.Dense(1)(middle))


def _trained(rank: int, kind: Any = None, **options: Any) -> list[Any]:
    import keras

    import paceline.keras as hvd

    model = _model(kind)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9), **options), "mse")
    model.fit(*_data(rank), batch_size=BATCH, shuffle=False, verbose=0)
    return [keras.ops.convert_to_numpy(one) for one in model.weights]


@contextmanager
def _begun() -> Iterator[list[bool]]:
    """Yield a list with an entry for each message: True if it begins before `apply`."""
    from paceline.keras3 import on_torch, optimizer

    found: list[bool] = []
    applying = False
    start, apply = on_torch.start, optimizer.Distributed.apply

    def note_apply(self: Any, *given: Any) -> None:
        nonlocal applying
        applying = True
        apply(self, *given)
        applying = False

    def note_start(*given: Any) -> Any:
        found.append(not applying)
        return start(*given)

    with (
        mock.patch.object(on_torch, "start", note_start),
        mock.patch.object(optimizer.Distributed, "apply", note_apply),
    ):
        yield found


@pytest.mark.parametrize("options", [{}, {"groups": 2}, {"codec": "bf16"}, {"compression": "fp16"}], ids=str)
@ranks(2, more=(3,), env=ENV)
def test_messages_begin_during_the_backward_pass(rank: int, size: int, options: dict[str, Any]) -> None:
    import keras

    import paceline.keras as hvd

    class OwnStep(keras.Model):
        def train_step(self, data: Any) -> Any:  # as Keras', but a train_step of the user's
            self.zero_grad()
            x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
            loss = self.compute_loss(x, y, self(x, training=True))
            loss.backward()
            weights = self.trainable_weights
            self.optimizer.apply([one.value.grad for one in weights], weights)
            return {"loss": loss}

    hvd.init()
    if "compression" in options:
        options = {"compression": hvd.Compression.fp16}
    with _begun() as early:
        weights = _trained(rank, **options)
    messages = options.get("groups", 4)
    assert early == [False] * messages + [True] * messages * (STEPS - 1)  # the first apply tells the messages
    with _begun() as late:
        expected = _trained(rank, OwnStep, **options)
    assert not any(late)
    # Which gradients share a message decides the order of Horovod's sums, from three ranks on.
    tolerance = 0.0 if size == 2 else 2e-3 if "compression" in options else 1e-6
    for one, other in zip(weights, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@ranks(2, env=ENV)
def test_sums_weights_and_other_exchanges_wait_for_apply(rank: int, size: int) -> None:
    import paceline.keras as hvd

    hvd.init()
    for options in ({"backward_passes_per_step": 2}, {"weight": "samples"}, {"exchange": "pipelined"}):
        with _begun() as early:
            _trained(rank, **options)
        assert not any(early), options


@ranks(2, env=ENV)
def test_a_changed_gradient_is_refused(rank: int, size: int) -> None:
    import keras

    import paceline.keras as hvd
    from paceline.errors import UsageError

    class Clipping(keras.Model):
        def train_step(self, data: Any) -> Any:
            import torch

            apply = type(self.optimizer).apply

            def clipped(optimizer: Any, grads: Any, variables: Any) -> None:
                torch._foreach_mul_(grads, 0.5)
                apply(optimizer, grads, variables)

            with mock.patch.object(type(self.optimizer), "apply", clipped):
                return super().train_step(data)

    hvd.init()
    with pytest.raises(UsageError, match="changed after the backward pass"):
        _trained(rank, Clipping)


@ranks(2, env=ENV)
def test_a_deleted_model_is_freed(rank: int, size: int) -> None:
    import keras

    import paceline.keras as hvd

    hvd.init()
    model = _model()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    model.fit(*_data(rank), batch_size=BATCH, shuffle=False, verbose=0)
    parameter = weakref.ref(model.trainable_variables[0].value)
    del model
    keras.utils.clear_session()
    gc.collect()
    assert parameter() is None
