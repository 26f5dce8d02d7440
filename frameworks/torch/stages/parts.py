"""What a stage computes and talks with, put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from paceline.stages.delays import delays
from paceline.torch.errors import UsageError
from paceline.stages.execution.clipping import Clipping
from paceline.torch.stages.correction import Correction
from paceline.stages.execution.executor import Executor, Loss
from paceline.torch.stages.layers import Stage
from paceline.stages.execution.losses import Losses
from paceline.torch.stages.passes import Passes
from paceline.stages.execution.posting import Post
from paceline.torch.stages.recompute import RecomputingPasses
from paceline.stages.execution.settings import Settings
from paceline.stages.execution.updates import Updates
from paceline.torch.stages.weights import Weights

MakeOptimizer = Callable[[Any], torch.optim.Optimizer]


@dataclass(frozen=True)
class Parts:
    """`optimizer`: None for a stage without parameters; `clipping`, `correction`: None where not asked for, or where
    there is nothing to correct.
    """

    optimizer: torch.optim.Optimizer | None
    clipping: Clipping | None
    correction: Correction | None
    passes: Passes
    updates: Updates
    losses: Losses
    executor: Executor


def assembled(
    post: Post,
    settings: Settings,
    stage: Stage,
    make_optimizer: MakeOptimizer,
    loss: Loss,
    device: torch.device,
    counts: Sequence[int],
) -> Parts:
    """The parts of `stage`, which is on `device`; `counts`: parameters of each stage."""
    rank, stages = post.mail.rank, post.mail.size
    tau_forward, tau_backward = delays(settings.schedule_of(stages))[rank]
    weights = Weights(stage.module, stage.parameters)
    optimizer = make_optimizer(iter(stage.parameters)) if stage.parameters else None
    if stage.parameters and not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(
            f"optimizer returned a {type(optimizer).__name__}: expected a torch.optim.Optimizer.",
            "Give a function of a stage's parameters that returns one.",
        )
    clipping = None
    if settings.max_norm is not None:
        clipping = Clipping(post, settings.max_norm, stage.parameters, counts)
    correction = None
    if settings.discrepancy is not None and tau_forward > tau_backward and stage.parameters:
        correction = Correction(stage.parameters, settings.discrepancy, tau_forward, tau_backward)
    if settings.recompute:
        passes: Passes = RecomputingPasses(stage.module, weights, device)
    else:
        passes = Passes(stage.module, weights)
    updates = Updates(weights, optimizer, clipping, correction, settings.annealing_steps, tau_forward)
    losses = Losses(post, stages)
    mean = settings.loss_reduction == "mean"
    executor = Executor(post, settings.n_microbatches, device, weights, passes, updates, losses, loss, mean)
    return Parts(optimizer, clipping, correction, passes, updates, losses, executor)
