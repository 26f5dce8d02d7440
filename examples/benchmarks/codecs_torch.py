"""Gradients in fewer bytes, with PyTorch.

    horovodrun -np 2 python examples/benchmarks/codecs_torch.py --model digits --seeds 5

Trains one model once for each coding and seed, with equal first weights, batches and steps. A coding is a codec
(docs/methods/codecs.md), with the suffix `_plain` if error feedback is off. The same ranks make all runs, one after
another. (*) marks the lines that choose a coding and that separate the runs of one process.

`digits` is the net of digits_torch.py, `characters` that of characters_torch.py. `uneven` is hard for codecs: a linear
classifier, each rank has different digits, and training ends at the same weights for any first weights.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import paceline.torch as hvd
from paceline.examples import characters, characters_torch, digits, digits_torch, replicas_torch

CODINGS = ("none", "bf16", "q8", "q8_plain")
PLAIN = "_plain"
CHARACTERS_BATCH = 16
LAST = 0.1  # share of the last steps, whose mean loss is the training loss

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Case:
    """A model and its training.

    `batches(seed, steps)` are this rank's, `held_out()` is data that no rank trains on; both are inputs and targets.
    `optimizer` gets the parameters. `rate_factor(step, steps)` multiplies the learning rate.
    """

    net: Callable[[], nn.Module]
    batches: Callable[[int, int], Iterator[Batch]]
    held_out: Callable[[], Batch]
    optimizer: Callable[[Any], torch.optim.Optimizer]
    steps: int
    rate_factor: Callable[[int, int], float] = lambda step, steps: 1.0


def _digits_batches(seed: int, steps: int) -> Iterator[Batch]:
    """Yield the batches of one epoch after another, each epoch in a different order."""
    images, labels, _, _ = digits_torch.data(hvd.rank(), hvd.size())
    orders = torch.Generator().manual_seed(1000 * seed + hvd.rank())
    while steps > 0:
        for chosen in torch.randperm(len(images), generator=orders).split(digits.BATCH)[:steps]:
            yield images[chosen], labels[chosen]
            steps -= 1


def _digits_held_out() -> Batch:
    return digits_torch.data(hvd.rank(), hvd.size())[2:]


def _uneven_batches(seed: int, steps: int) -> Iterator[Batch]:
    """Yield all images of the digits that belong to this rank in every step; only first weights are random.

    The encoding error is then the same in every step, and so are gradients: each rank pulls toward its digits in every
    step, and the sum of the gradients is small compared with them.
    """
    parts = [digits_torch.data(rank, hvd.size()) for rank in range(hvd.size())]
    images, labels = (torch.cat([part[one] for part in parts]) for one in (0, 1))
    mine = labels.argsort(stable=True).tensor_split(hvd.size())[hvd.rank()]
    for _ in range(steps):
        yield images[mine], labels[mine]


def _characters_batches(seed: int, steps: int) -> Iterator[Batch]:
    windows = characters.training(hvd.rank(), hvd.size(), steps * CHARACTERS_BATCH, seed)
    for step in range(steps):
        inputs, targets = (torch.from_numpy(part).long() for part in windows.batch(step, CHARACTERS_BATCH))
        yield inputs, targets


def _characters_held_out() -> Batch:
    test = characters.held_out()
    return torch.from_numpy(test.inputs).long(), torch.from_numpy(test.targets).long()


CASES = {
    "digits": Case(
        digits_torch.net,
        _digits_batches,
        _digits_held_out,
        lambda parameters: torch.optim.Adam(parameters, lr=1e-3 * hvd.size()),
        184,  # 8 epochs on 2 ranks
    ),
    "uneven": Case(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)),
        _uneven_batches,
        _digits_held_out,
        lambda parameters: torch.optim.SGD(parameters, lr=0.2, momentum=0.9, weight_decay=1e-2),
        184,
    ),
    "characters": Case(
        characters_torch.Net,
        _characters_batches,
        _characters_held_out,
        lambda parameters: torch.optim.Adam(parameters, lr=2e-3),
        300,
        characters.rate_factor,
    ),
}


def train(case: Case, coding: str, seed: int, steps: int) -> dict[str, Any]:
    """Make one run. Return {"loss", "training_loss", "accuracy", "equal": True if all ranks hold the same weights}."""
    torch.manual_seed(seed)
    model = case.net()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        case.optimizer(model.parameters()),
        # (*) Residuals of error feedback are stored by name: no run continues with the residuals of another.
        named_parameters=[(f"{coding}.{seed}.{name}", one) for name, one in model.named_parameters()],
        codec=coding.removesuffix(PLAIN),
        error_feedback=False if coding.endswith(PLAIN) else None,  # None: where error feedback applies
    )  # (*)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: case.rate_factor(step, steps))
    loss_of = nn.CrossEntropyLoss()
    losses = []
    for inputs, targets in case.batches(seed, steps):
        optimizer.zero_grad()
        loss = loss_of(model(inputs), targets)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    last = torch.stack(losses)[-max(1, round(LAST * steps)) :].mean()

    inputs, targets = case.held_out()
    model.eval()
    with torch.no_grad():
        found = model(inputs)
        accuracy = (found.argmax(1) == targets).float().mean().item()
        return {
            "loss": loss_of(found, targets).item(),
            "training_loss": hvd.allreduce(last, name="training_loss").item(),
            "accuracy": accuracy,
            "equal": replicas_torch.equal(model),
        }


def main() -> None:
    """Train with every coding and seed, and print a line for each."""
    parser = argparse.ArgumentParser(description="Compare codecs of gradients on one model.")
    parser.add_argument("--model", choices=tuple(CASES), default="digits")
    parser.add_argument("--codings", default=",".join(CODINGS), help="default: %(default)s")
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 0: first weights and batches")
    parser.add_argument("--steps", type=int, help="default: what the model is usually trained for")
    chosen = parser.parse_args()

    hvd.init()
    case = CASES[chosen.model]
    steps = chosen.steps or case.steps
    for seed in range(chosen.seeds):
        for coding in chosen.codings.split(","):
            result = train(case, coding, seed, steps)
            if hvd.rank() == 0:
                row = {"model": chosen.model, "coding": coding, "seed": seed, "steps": steps, **result}
                print("RESULT " + json.dumps(row), flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
