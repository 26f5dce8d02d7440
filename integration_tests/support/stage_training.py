"""Small nets, their data, and what pipelines of stages must make of them: for tests of hvd.Pipeline."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from paceline.stages import schedules

Optimizer = Callable[[Any], torch.optim.Optimizer]
WIDTHS = (5, 7, 6, 7, 4, 3)
N = 3  # micro-batches
mse = torch.nn.functional.mse_loss


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01)


def rmsprop(parameters: Any) -> torch.optim.Optimizer:
    """Adam without momentum."""
    return torch.optim.Adam(parameters, lr=0.01, betas=(0.0, 0.99))


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01)


def net(dtype: torch.dtype = torch.float64) -> torch.nn.Sequential:
    """Five linear layers with tanh between them; the same wherever it is built."""
    random = torch.Generator().manual_seed(7)
    layers: list[torch.nn.Module] = []
    for inputs, outputs in itertools.pairwise(WIDTHS):
        linear = torch.nn.Linear(inputs, outputs, dtype=dtype)
        with torch.no_grad():
            linear.weight.copy_(torch.randn(outputs, inputs, generator=random) / inputs**0.5)
            linear.bias.copy_(torch.randn(outputs, generator=random) / 10)
        layers += [linear, torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1])


def data(step: int, rows: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(1000 + step)
    return (
        torch.randn(rows, WIDTHS[0], generator=random, dtype=torch.float64).to(dtype),
        torch.randn(rows, WIDTHS[-1], generator=random, dtype=torch.float64).to(dtype),
    )


def accumulate(
    model: torch.nn.Module,
    optimizer: Optimizer,
    batches: Iterable[tuple[Any, Any]],
    microbatches: int,
    max_norm: float | None = None,
    loss: Callable[[Any, Any], Tensor] = mse,
) -> list[float]:
    """One process that accumulates the gradients of micro-batches in order: the losses. Changes `model`.

    Batches and targets may be trees, whose tensors have the same rows.
    """
    made = optimizer(model.parameters())
    losses = []
    for batch in batches:
        rows = next(len(one) for one in pytree.tree_leaves(batch) if isinstance(one, Tensor))
        total = 0.0
        for part in torch.arange(rows).tensor_split(microbatches):
            chosen = slice(int(part[0]), int(part[-1]) + 1)
            inputs, goal = pytree.tree_map(lambda one, at=chosen: one[at] if isinstance(one, Tensor) else one, batch)
            found = loss(model(inputs), goal) * (len(part) / rows)
            found.backward()
            total = total + found.detach()
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        made.step()
        made.zero_grad()
        losses.append(float(total))
    return losses


def train(
    communicator: Any,
    optimizer: Optimizer,
    batches: Sequence[tuple[Tensor, Tensor]],
    model: Any = None,
    **arguments: Any,
) -> dict[str, Any]:
    """Train a pipeline on this stage: its weights by name, all losses, delays and maxima of its memory use."""
    import paceline.torch as hvd

    arguments = {"n_microbatches": N, **arguments}
    pipeline = hvd.Pipeline(net() if model is None else model, optimizer, mse, communicator=communicator, **arguments)
    found = [pipeline.step(batch, target).item() for batch, target in batches]
    warm_up = arguments.get("warmup_steps", 0)
    microbatches = pipeline.microbatches
    every = microbatches * arguments.get("update_every", 1)
    lag = schedules.make(arguments.get("schedule", "1f1b"), pipeline.stages, every).loss_lag_of(microbatches)
    late = found[warm_up:]
    losses = found[:warm_up] + late[min(lag, len(late) - 1) :] + [loss.item() for loss in pipeline.drain()]
    result = {
        "weights": {name: one.clone() for name, one in pipeline.state_dict()["model"].items()},
        "losses": losses,
        "delays": pipeline.measured_delays(),
        "activations": pipeline.most_activations,
        "copies": pipeline.most_weight_copies,
        "cut": pipeline.cut,
    }
    pipeline.close()
    return result


def merged(results: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
    return {name: one for result in results for name, one in result["weights"].items()}
