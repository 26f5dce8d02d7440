"""The net of stage_training as a Keras model, and expected results of pipelines of stages: for tests of Keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from paceline.stages import schedules

Arrays = dict[str, np.ndarray[Any, Any]]
N = 3  # micro-batches


def dtype() -> str:
    """Type of nets: on PyTorch Keras would compute float64 in float32, with casts of all weights."""
    import keras

    return "float64" if keras.backend.backend() == "tensorflow" else "float32"


def keras_net(weights: Sequence[np.ndarray[Any, Any]]) -> Any:
    """Linear layers with tanh between them; `weights`: a kernel and a bias of each, in turn."""
    import keras

    layers: list[Any] = [keras.Input((weights[0].shape[0],), dtype=dtype())]
    for kernel in weights[::2]:
        layers += [keras.layers.Dense(kernel.shape[1], dtype=dtype()), keras.layers.Activation("tanh", dtype=dtype())]
    model = keras.Sequential(layers[:-1])
    model.set_weights(list(weights))
    return model


def mse() -> Any:
    import keras

    return keras.losses.MeanSquaredError(dtype=dtype())


def tensors(batches: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Convert arrays to tensors of the backend; floating-point numbers to the type of nets."""
    import keras

    def tensor(array: Any) -> Any:
        return keras.ops.convert_to_tensor(array, dtype=dtype() if array.dtype.kind == "f" else None)

    return [(tensor(batch), tensor(target)) for batch, target in batches]


def accumulate(model: Any, optimizer: Any, loss: Any, batches: Sequence[tuple[Any, Any]], count: int) -> list[float]:
    """Train in one process, summing the gradients of micro-batches in order; return the losses. Changes `model`."""
    import keras

    losses = []
    for batch, target in tensors(batches):
        total: Any = 0.0
        sums = None
        begin = 0
        for part in np.array_split(np.arange(batch.shape[0]), count):
            end = begin + len(part)
            share = len(part) / batch.shape[0]
            found, gradients = _gradients(model, loss, batch[begin:end], target[begin:end], share)
            sums = gradients if sums is None else [one + other for one, other in zip(sums, gradients, strict=True)]
            total = total + found
            begin = end
        optimizer.apply(sums, model.trainable_variables)
        losses.append(float(keras.ops.convert_to_numpy(total)))
    return losses


def _gradients(model: Any, loss: Any, batch: Any, target: Any, share: float) -> tuple[Any, list[Any]]:
    import keras

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            found = loss(target, model(batch, training=True)) * share
        values = [one.value for one in model.trainable_variables]
        return found, [tf.convert_to_tensor(one) for one in tape.gradient(found, values)]
    import torch

    found = loss(target, model(batch, training=True)) * share
    values = [one.value for one in model.trainable_variables]
    return found.detach(), list(torch.autograd.grad(found, values))


def train(model: Any, optimizer: Any, batches: Sequence[tuple[Any, Any]], **arguments: Any) -> dict[str, Any]:
    """Train a pipeline on this stage: its weights by name, all losses, delays, and maxima of its memory use."""
    import paceline.keras as hvd

    arguments = {"n_microbatches": N, "loss": mse(), **arguments}
    pipeline = hvd.Pipeline(model, optimizer, **arguments)
    found = [pipeline.step(batch, target) for batch, target in tensors(batches)]
    warm_up = arguments.get("warmup_steps", 0)
    lag = schedules.make(arguments.get("schedule", "1f1b"), pipeline.stages, pipeline.microbatches).loss_lag
    late = found[warm_up:]
    losses = found[:warm_up] + late[min(lag, len(late) - 1) :] + pipeline.drain()
    result = {
        "weights": pipeline.state_dict()["model"],
        "losses": losses,
        "delays": pipeline.measured_delays(),
        "activations": pipeline.most_activations,
        "copies": pipeline.most_weight_copies,
    }
    pipeline.close()
    return result


def assert_close(result: dict[str, Any], weights: Arrays, losses: Sequence[float], atol: float) -> None:
    """Assert that a stage has its part of `weights`, and all stages have the losses."""
    assert result["weights"]
    for name, one in result["weights"].items():
        np.testing.assert_allclose(one, weights[name], rtol=0, atol=atol, err_msg=name)
    np.testing.assert_allclose(result["losses"], losses, rtol=0, atol=atol)


def named(model: Any) -> Arrays:
    """The weights of a plain model, with a pipeline's names."""
    import keras

    from paceline.keras.stages.layers import layers_of

    named = [pair for layer in layers_of(model) for pair in layer.named()]
    return {name: np.array(keras.ops.convert_to_numpy(one.value)) for name, one in named}
