"""Handwritten digits with Lightning: `horovodrun -np 2 python examples/digits_lightning.py --epochs 8`.

Lightning has no strategy for Horovod. `HorovodStrategy` adds one for any LightningModule and any exchange. With
`--exchange pipelined`, gradients are in flight while the next step is computed (docs/guides/lightning.md).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import ParallelStrategy
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import Metric

import paceline.torch as hvd
from paceline.config import EXCHANGES
from paceline.examples import digits, digits_torch, replicas_torch


class HorovodStrategy(ParallelStrategy):
    """Strategy for the ranks that horovodrun started, one device each; `options`: those of hvd.DistributedOptimizer.

    `uneven`: weight batches by their number of samples, and allow ranks to have different numbers of batches.
    """

    is_distributed = True  # Lightning puts a DistributedSampler into data loaders
    root_device = property(lambda self: self.parallel_devices[0])
    global_rank = property(lambda self: hvd.rank())
    local_rank = property(lambda self: hvd.local_rank())
    world_size = property(lambda self: hvd.size())
    distributed_sampler_kwargs = property(lambda self: {"num_replicas": hvd.size(), "rank": hvd.rank()})

    def __init__(self, uneven: bool = False, **options: Any) -> None:
        hvd.init()
        device = torch.device("cuda", hvd.local_rank()) if torch.cuda.is_available() else torch.device("cpu")
        super().__init__(parallel_devices=[device])
        self.uneven, self.options = uneven, options
        rank_zero_only.rank = hvd.rank()  # who prints and writes

    def setup(self, trainer: pl.Trainer) -> None:
        """Make metrics of torchmetrics combine their state over all ranks."""
        super().setup(trainer)
        for metric in self.lightning_module.modules():
            if isinstance(metric, Metric):
                metric.distributed_available_fn = lambda: True
                metric.dist_sync_fn = lambda state, group=None: hvd.allgather_object(state)

    def setup_optimizers(self, trainer: pl.Trainer) -> None:
        """Broadcast the first rank's weights, and wrap the optimizers of configure_optimizers."""
        super().setup_optimizers(trainer)
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        named, passes = list(self.model.named_parameters()), trainer.accumulate_grad_batches
        self.optimizers: list[Any] = [
            hvd.DistributedOptimizer(one, named, backward_passes_per_step=passes, **self.options)
            for one in self.optimizers
        ]

    def optimizer_step(self, optimizer: Any, closure: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
        """Combine gradients right after the closure, so that clipping and callbacks see the gradients of all ranks."""
        result = super().optimizer_step(optimizer, lambda: optimizer.evaluate(closure), *args, **kwargs)
        if self.uneven and self.lightning_module.trainer.is_last_batch:
            hvd.finish_uneven(optimizer)
        return result

    def training_step(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Weight the batch by its number of samples."""
        if not self.uneven:
            return super().training_step(batch, *args, **kwargs)
        for optimizer in self.optimizers:
            optimizer.weight = hvd.samples_of(batch)
        result = super().training_step(batch, *args, **kwargs)
        passes = self.lightning_module.trainer.accumulate_grad_batches  # Lightning divides by it, and so do the weights
        return {**result, "loss": result["loss"] * passes} if isinstance(result, dict) else result * passes

    def on_train_start(self) -> None:
        """Refuse different numbers of batches: other ranks would wait for the rank whose data has ended."""
        counts = hvd.allgather_object(self.lightning_module.trainer.num_training_batches)
        if (len(set(counts)) > 1 and not self.uneven) or min(counts) == 0:
            said = ", ".join(f"rank {rank} has {count}" for rank, count in enumerate(counts))
            raise hvd.UsageError(
                f"Expected equally many batches of an epoch on all ranks, found others: {said}.",
                f"Use HorovodStrategy(uneven=True), or limit_train_batches={min(counts)} of the Trainer.",
            )

    def on_train_end(self) -> None:
        """Apply the updates whose gradients are in flight; none with a synchronous exchange."""
        for optimizer in self.optimizers:
            optimizer.drain()

    def model_to_device(self) -> None:
        """Move the model to this rank's device."""
        self.model.to(self.root_device)

    def barrier(self, name: str | None = None) -> None:
        """Wait for all ranks."""
        hvd.barrier()

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """Return the object of rank `src`."""
        return hvd.broadcast_object(obj, src)

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Return the mean over ranks, or the sum, of a value logged with sync_dist=True."""
        value, average = torch.as_tensor(tensor), reduce_op in (None, "mean", "avg")
        name = f"lightning.reduce.{value.dtype}.{list(value.shape)}"  # logged values differ in type
        return hvd.allreduce(value, op=hvd.Average if average else hvd.Sum, name=name)

    def all_gather(self, tensor: Tensor, group: Any = None, sync_grads: bool = False) -> Tensor:
        """Gather tensors of shape (...) into one of shape (ranks, ...)."""
        return hvd.allgather(tensor.unsqueeze(0), name="lightning.gather")


class Digits(pl.LightningModule):
    """Ordinary module, independent of ranks."""

    def __init__(self, rate: float = 1e-3) -> None:
        super().__init__()
        self.net = digits_torch.net()
        self.rate = rate

    def training_step(self, batch: tuple[Tensor, Tensor], number: int) -> Tensor:
        """Return the loss on a batch of images (n, 1, 8, 8) and labels (n,)."""
        images, labels = batch
        return nn.functional.cross_entropy(self.net(images), labels)

    def test_step(self, batch: tuple[Tensor, Tensor], number: int) -> None:
        """Log loss and accuracy."""
        images, labels = batch
        found = self.net(images)
        self.log("loss", nn.functional.cross_entropy(found, labels), sync_dist=True)
        self.log("accuracy", (found.argmax(1) == labels).float().mean(), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return plain Adam; the strategy wraps it."""
        return torch.optim.Adam(self.net.parameters(), lr=self.rate)


def main() -> None:
    """Train and test."""
    parser = argparse.ArgumentParser(description="Handwritten digits with Lightning on all ranks.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0, help="chooses first weights and batches")
    parser.add_argument("--exchange", choices=EXCHANGES, help="default: what PACELINE_EXCHANGE says")
    arguments = parser.parse_args()

    strategy = HorovodStrategy(exchange=arguments.exchange)
    pl.seed_everything(arguments.seed, verbose=False)
    train_x, train_y, test_x, test_y = digits_torch.data(0, 1)  # all of them: Lightning shares them among the ranks
    model = Digits(rate=1e-3 * hvd.size())
    quiet = dict.fromkeys(("enable_checkpointing", "enable_model_summary", "enable_progress_bar", "logger"), False)
    trainer = pl.Trainer(strategy=strategy, devices=1, max_epochs=arguments.epochs, **quiet)
    trainer.fit(model, DataLoader(TensorDataset(train_x, train_y), digits.BATCH, shuffle=True))
    if hvd.exchange_stats().rounds:
        replicas_torch.average(model)  # ranks that do not wait for each other drift apart (docs/methods/partial.md)
    (logged,) = trainer.test(model, DataLoader(TensorDataset(test_x, test_y), len(test_x)), verbose=False)
    result = {**logged, "equal": replicas_torch.equal(model)}
    if hvd.rank() == 0:
        print("RESULT " + json.dumps(result), flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
