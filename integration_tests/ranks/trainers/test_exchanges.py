"""Trainers with their default settings under every exchange: replicas end equal, and as one process.

One process has the batches of all ranks, and for `pipelined` an optimizer that is delayed by one step. The result of
`local`, whose only average here is the last one, is the mean of the models of one process for each share. Partial
exchanges have no such reference, because a round has the gradients that have arrived: training converges, and replicas
end equal.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, SequentialSampler, TensorDataset

import paceline.torch as hvd
from integration_tests.support.more import first_of
from integration_tests.support.one_process import DelayedAdamW
from integration_tests.support.ranks import run_ranks
from integration_tests.support.torch_training import assert_replicas_equal, parameters

PARTIAL = ("majority", "solo", "quorum")
EXCHANGES = ("sync", "pipelined", "local", *PARTIAL)
BATCH, BATCHES, EPOCHS, RATE = 8, 24, 2, 2e-3
EXACT = 1e-9  # of the largest parameter: sums of all ranks are made in another order

# Trains a model with an optimizer, under an exchange or as one process (None), on batches of the given number of rows
# of this data. Returns the wrapped optimizer, to be drained; None where the trainer has drained it.
Trains = Callable[[Any, Any, Any, TensorDataset, int, str], Any]


def _wrapped(model: Any, optimizer: Any, exchange: Any) -> Any:
    return (
        optimizer
        if exchange is None
        else hvd.DistributedOptimizer(optimizer, model.named_parameters(), exchange=exchange)
    )


def _huggingface(model: Any, optimizer: Any, exchange: Any, data: TensorDataset, rows: int, folder: str) -> Any:
    from transformers import Trainer, TrainingArguments

    from paceline.examples import digits_huggingface as example

    optimizer = _wrapped(model, optimizer, exchange)
    arguments = TrainingArguments(
        folder, per_device_train_batch_size=rows, num_train_epochs=EPOCHS, report_to="none", use_cpu=True
    )
    trainer = Trainer(model, arguments, train_dataset=example.Images(*data.tensors), optimizers=(optimizer, None))
    trainer._get_train_sampler = lambda dataset=None: SequentialSampler(trainer.train_dataset)  # it shuffles
    trainer.train()
    return optimizer


def _lightning(model: Any, optimizer: Any, exchange: Any, data: TensorDataset, rows: int, folder: str) -> Any:
    import lightning.pytorch as pl

    from paceline.examples import digits_lightning

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = model

        def training_step(self, batch: Any, number: int) -> Any:
            loss = model(*batch)["loss"]
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return optimizer

    strategy = "auto" if exchange is None else digits_lightning.HorovodStrategy(exchange=exchange)
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, strategy=strategy, max_epochs=EPOCHS, default_root_dir=folder,
        use_distributed_sampler=False,  # it shuffles
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(data, rows))


def _accelerate(model: Any, optimizer: Any, exchange: Any, data: TensorDataset, rows: int, folder: str) -> Any:
    from accelerate import Accelerator

    accelerator, optimizer = Accelerator(cpu=True), _wrapped(model, optimizer, exchange)
    together, stepping, loader = accelerator.prepare(model, optimizer, DataLoader(data, rows))
    for _ in range(EPOCHS):
        for batch in loader:
            accelerator.backward(together(*batch)["loss"])
            stepping.step()
            stepping.zero_grad()
    return optimizer


TRAINERS: dict[str, Trains] = {"huggingface": _huggingface, "lightning": _lightning, "accelerate": _accelerate}


def _data(size: int) -> tuple[TensorDataset, list[TensorDataset]]:
    """All data, and each rank's: batch by batch, the ranks' batches together equal one process's."""
    from paceline.examples import digits_torch

    images, labels, *_ = digits_torch.data(0, 1)
    whole = [one[: size * BATCH * BATCHES] for one in (images.double(), labels)]
    parts = [[one.unflatten(0, (BATCHES, size, BATCH))[:, rank].flatten(0, 1) for one in whole] for rank in range(size)]
    return TensorDataset(*whole), [TensorDataset(*part) for part in parts]


def _model() -> tuple[Any, Any]:
    from paceline.examples import digits_huggingface

    torch.manual_seed(0)
    model = digits_huggingface.Digits().double()
    return model, list(model.parameters())


def _alone(train: Trains, exchange: str, size: int, folder: str) -> torch.Tensor:
    """The parameters of one process after the same training, without the update that drain() makes."""
    whole, parts = _data(size)
    if exchange == "local":
        return torch.stack([_trained_alone(train, torch.optim.AdamW, part, BATCH, folder) for part in parts]).mean(0)
    kind = DelayedAdamW if exchange == "pipelined" else torch.optim.AdamW
    return _trained_alone(train, kind, whole, BATCH * size, folder)


def _trained_alone(train: Trains, kind: Any, data: TensorDataset, rows: int, folder: str) -> torch.Tensor:
    model, weights = _model()
    optimizer = kind(weights, lr=RATE)
    train(model, optimizer, None, data, rows, folder)
    if train is _lightning and kind is DelayedAdamW:
        optimizer.finish()
    return parameters(model)


def _differences(rank: int, size: int, name: str, folder: str) -> dict[str, float]:
    train, (whole, parts), found = TRAINERS[name], _data(size), {}
    folder = f"{folder}/rank{rank}"
    for exchange in EXCHANGES:
        settings = {"local": hvd.Local(sync_every=10**6), "quorum": hvd.Partial(quorum=2)}.get(exchange, exchange)
        model, weights = _model()
        optimizer = train(model, torch.optim.AdamW(weights, lr=RATE), settings, parts[rank], BATCH, folder)
        if exchange == "local" and optimizer is not None:
            optimizer.drain()
        here = parameters(model).clone()
        if optimizer is not None:
            optimizer.drain()
        if exchange in PARTIAL:  # Adam takes the sum of what a late rank missed as one gradient: replicas part
            from paceline.examples import replicas_torch

            replicas_torch.average(model)
            learnt = model(*whole.tensors)["logits"].argmax(1) == whole.tensors[1]
            found[exchange] = learnt.double().mean().item()
        else:
            there = _alone(train, exchange, size, folder)
            found[exchange] = ((here - there).abs().max() / there.abs().max()).item()
        assert_replicas_equal(model, f"{name}.{exchange}")
        del optimizer
    return found


@pytest.mark.parametrize(
    "case",
    first_of([(name, size) for name in TRAINERS for size in (2, 3)], ("accelerate", 2)),
    ids=lambda case: "-".join(map(str, case)),
)
def test_replicas_end_equal_and_as_one_process(case: tuple[str, int], tmp_path: Path) -> None:
    name, size = case
    for rank, found in enumerate(run_ranks(_differences, size, name, str(tmp_path), timeout_s=250)):
        print(name, size, rank, found)
        for exchange, value in found.items():
            assert value > 0.3 if exchange in PARTIAL else value < EXACT, (exchange, value)
