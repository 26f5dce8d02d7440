"""Assembly of a stage's parts on PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from paceline.stages.delays import delays
from paceline.stages.execution.finish import Finish, Loss
from paceline.stages.execution.losses import Losses
from paceline.stages.execution.parts import Parts, put_together
from paceline.stages.execution.posting import Post
from paceline.stages.execution.settings import Settings
from paceline.torch.errors import UsageError
from paceline.torch.stages.correction import Correction
from paceline.torch.stages.layers import Stage
from paceline.torch.stages.nesterov import Nesterov, refuse_momentum
from paceline.torch.stages.passes import Passes
from paceline.torch.stages.random_numbers import RandomNumbers
from paceline.torch.stages.recompute import RecomputingPasses
from paceline.torch.stages.replicas import MakeOptimizer, combine
from paceline.torch.stages.step import OptimizerStep
from paceline.torch.stages.tensors import ParameterGradients, StageTensors
from paceline.torch.stages.ties import Ties
from paceline.torch.stages.weights import Weights


def assembled(
    post: Post,
    losses: Losses,
    settings: Settings,
    stage: Stage,
    make_optimizer: MakeOptimizer,
    loss: Loss,
    tensors: StageTensors,
    counts: Sequence[int],
    numbers: RandomNumbers,
    ties: Ties,
) -> Parts:
    """Assemble the parts of `stage`; `counts`: number of parameters of each stage."""
    rank, stages = post.communicator.rank, post.communicator.size
    tau_forward, tau_backward = delays(settings.schedule_of(stages))[rank]
    weights = Weights(stage.module, [*stage.parameters, *stage.copies])
    optimizer = make_optimizer(iter(stage.parameters)) if stage.parameters else None
    if stage.parameters and not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(
            f"optimizer returned a {type(optimizer).__name__}: expected a torch.optim.Optimizer.",
            "Give a function of a stage's parameters that returns one.",
        )
    correction = None
    if settings.correction is not None and tau_forward > tau_backward and stage.parameters:
        correction = Correction(stage.parameters, settings.correction, tau_forward, tau_backward)
    nesterov = None
    if settings.nesterov is not None and optimizer is not None:
        refuse_momentum(optimizer)
        nesterov = Nesterov(stage.parameters, settings.nesterov, rank, stages)
    finish = Finish(tensors, rank, rank == stages - 1, loss)
    if settings.recompute:
        passes: Passes = RecomputingPasses(stage.module, weights, finish, tensors.device, numbers)
    else:
        passes = Passes(stage.module, weights, finish, numbers)
    step = OptimizerStep(optimizer, [one for one in (correction, nesterov) if one is not None])
    gradients = ParameterGradients(stage.parameters, lambda: combine(optimizer))
    return put_together(
        post, tensors, settings, weights, passes, gradients, counts, optimizer, correction, step, nesterov, losses, ties
    )
