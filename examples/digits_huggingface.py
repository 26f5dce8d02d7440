"""Handwritten digits with Hugging Face's Trainer: `horovodrun -np 2 python examples/digits_huggingface.py --epochs 8`.

Each rank runs a separate Trainer on its share of the images; the wrapped optimizer averages the gradients
(docs/guides/huggingface.md). (1) to (4) mark the lines that make the script distributed.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

if "HOROVOD_LOCAL_RANK" in os.environ:  # (1) before torch initializes CUDA: one GPU for each rank
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", os.environ["HOROVOD_LOCAL_RANK"])

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments, set_seed

import paceline.torch as hvd
from paceline.config import EXCHANGES
from paceline.examples import digits, digits_torch, replicas_torch


class Digits(nn.Module):
    """A model in the form that Trainer expects: with labels it also returns the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.net = digits_torch.net()

    def forward(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return loss and logits of images (n, 1, 8, 8) with labels (n,)."""
        logits = self.net(images)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Images(Dataset[dict[str, Tensor]]):
    """Images and labels in the form that Trainer collates."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"images": self.images[index], "labels": self.labels[index]}


def trainer_of(
    model: nn.Module, dataset: Images, rate: float, exchange: Any = None, **choices: Any
) -> tuple[Trainer, Any]:
    """Return a Trainer of this rank and its optimizer; `dataset` is the rank's share, equally long on all ranks."""
    choices = {"report_to": "none", "save_strategy": "no", "disable_tqdm": hvd.rank() > 0, **choices}
    arguments = TrainingArguments(learning_rate=rate, **choices)
    optimizer = hvd.DistributedOptimizer(  # (2)
        torch.optim.AdamW(model.parameters(), lr=rate),
        model.named_parameters(),
        backward_passes_per_step=arguments.gradient_accumulation_steps,
        exchange=exchange,
    )
    hvd.broadcast_state(model, optimizer)  # (3)
    return Trainer(model, arguments, train_dataset=dataset, optimizers=(optimizer, None)), optimizer


def main() -> None:
    """Train and test."""
    parser = argparse.ArgumentParser(description="Handwritten digits with Hugging Face's Trainer on all ranks.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0, help="chooses first weights and batches")
    parser.add_argument("--exchange", choices=EXCHANGES, help="default: what PACELINE_EXCHANGE says")
    arguments = parser.parse_args()

    hvd.init()
    set_seed(arguments.seed)
    train_x, train_y, test_x, test_y = digits_torch.data(hvd.rank(), hvd.size())  # (4)
    model = Digits()
    trainer, optimizer = trainer_of(
        model,
        Images(train_x, train_y),
        1e-3 * hvd.size(),
        arguments.exchange,
        num_train_epochs=arguments.epochs,
        per_device_train_batch_size=digits.BATCH,
    )
    trainer.train()
    optimizer.drain()  # for the exchanges that do not wait
    if hvd.exchange_stats().rounds:
        replicas_torch.average(model)  # ranks that do not wait for each other drift apart (docs/methods/partial.md)
    with torch.no_grad():
        found = model.net(test_x.to(trainer.args.device)).cpu()
    accuracy = (found.argmax(1) == test_y).float().mean().item()
    result = {"accuracy": accuracy, "equal": replicas_torch.equal(model)}
    if hvd.rank() == 0:
        print("RESULT " + json.dumps(result), flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
