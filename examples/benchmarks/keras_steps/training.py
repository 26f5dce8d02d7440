"""A Keras training step of each system, on a rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.examples.benchmarks.harness import connections
from paceline.examples.benchmarks.harness.place import Place
from paceline.examples.benchmarks.steps.training import Counters, Training

RATE, MOMENTUM = 1e-3, 0.9


def _library() -> str:
    import keras

    return str(keras.backend.backend())


def _sgd() -> Any:
    import keras

    return keras.optimizers.SGD(RATE, momentum=MOMENTUM)


def _compiled(model: Any, optimizer: Any, batch: tuple[Any, Any]) -> Callable[[], None]:
    import keras

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=False)

    def step() -> None:
        model.train_on_batch(*batch)

    return step


def _counted() -> Counters | None:
    return connections.counters(_library())


def horovod(model: Any, place: Place, batch: tuple[Any, Any]) -> Training:
    """Script for Horovod."""
    connections.connect_horovod(place, _library())
    import horovod.keras as hvd

    return Training(_compiled(model, hvd.DistributedOptimizer(_sgd()), batch), _counted)


def paceline(model: Any, place: Place, batch: tuple[Any, Any]) -> Training:
    """Script for Paceline; PACELINE_* variables choose exchange, merging and codec."""
    connections.connect_horovod(place, _library())
    import paceline.keras as hvd

    return Training(_compiled(model, hvd.DistributedOptimizer(_sgd()), batch), _counted)


def alone(model: Any, place: Place, batch: tuple[Any, Any]) -> Training:
    """No communication."""
    return Training(_compiled(model, _sgd(), batch))


def ddp(model: Any, place: Place, batch: tuple[Any, Any]) -> Training:
    """Keras on PyTorch in DistributedDataParallel, in a training loop as in Keras' guide for several GPUs."""
    import torch

    connections.connect_torch(place)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    trained = [parameter for parameter in parallel.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=RATE, momentum=MOMENTUM)
    criterion = torch.nn.CrossEntropyLoss()
    images, labels = batch
    labels = labels.long()

    def step() -> None:
        optimizer.zero_grad()
        criterion(parallel(images, training=True), labels).backward()
        optimizer.step()

    return Training(step)
