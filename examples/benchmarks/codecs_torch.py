"""Gradients in fewer bytes, with PyTorch.

    horovodrun -np 2 python examples/benchmarks/codecs_torch.py --model digits --seeds 5

Trains one model once for each coding and seed, all else being the same: first weights, batches, steps. A coding is a
codec (docs/methods/codecs.md), with `_plain` behind it where error feedback is left out. All runs are made by the same
ranks, one after another; (*) marks what chooses a coding, and what keeps the runs of one process apart.

`digits` is the net of digits_torch.py, `characters` that of characters_torch.py. `uneven` is hard for codecs: a linear
classifier, each rank has other digits, and training ends at the same weights wherever it began.
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
LAST = 0.1  # the part of the steps whose mean loss is the training loss

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Case:
    """A model and how it is trained.

    `batches(seed, steps)` are this rank's, `held_out()` is what no rank trains on; both are inputs and targets.
    `optimizer` gets the parameters. `rate_factor(step, steps)` multiplies the learning rate.
    """

    net: Callable[[], nn.Module]
    batches: Callable[[int, int], Iterator[Batch]]
    held_out: Callable[[], Batch]
    optimizer: Callable[[Any], torch.optim.Optimizer]
    steps: int
    rate_factor: Callable[[int, int], float] = lambda step, steps: 1.0


def _digits_batches(seed: int, steps: int) -> Iterator[Batch]:
    """Batches of one epoch after another, each in an order of its own."""
    images, labels, _, _ = digits_torch.data(hvd.rank(), hvd.size())
    orders = torch.Generator().manual_seed(1000 * seed + hvd.rank())
    while steps > 0:
        for chosen in torch.randperm(len(images), generator=orders).split(digits.BATCH)[:steps]:
            yield images[chosen], labels[chosen]
            steps -= 1


def _digits_held_out() -> Batch:
    return digits_torch.data(hvd.rank(), hvd.size())[2:]


def _uneven_batches(seed: int, steps: int) -> Iterator[Batch]:
    """In every step all images of the digits that belong to this rank; only first weights are random.

    What encoding loses is then the same in step after step, and so are gradients: each rank pulls toward its digits
    for ever, and what remains of their sum is small beside them.
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
    """One run; {"loss", "training_loss", "accuracy", "equal": whether all ranks hold the same weights}."""
    torch.manual_seed(seed)
    model = case.net()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        case.optimizer(model.parameters()),
        # (*) What error feedback keeps belongs to a name: no run goes on with what another has left.
        named_parameters=[(f"{coding}.{seed}.{name}", one) for name, one in model.named_parameters()],
        codec=coding.removesuffix(PLAIN),
        error_feedback=False if coding.endswith(PLAIN) else None,  # None: where there is something to feed back
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
                told = {"model": chosen.model, "coding": coding, "seed": seed, "steps": steps, **result}
                print("RESULT " + json.dumps(told), flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
