"""Assembly of a stage from its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.stages.delays import delays
from paceline.stages.execution.clipping import Clipping, Gradients
from paceline.stages.execution.executor import Executor, Passes
from paceline.stages.execution.grid import Grid
from paceline.stages.execution.losses import Losses
from paceline.stages.execution.posting import Post
from paceline.stages.execution.settings import Settings
from paceline.stages.execution.tensors import Tensors
from paceline.stages.execution.updates import Ties, Updates
from paceline.stages.execution.versions import VersionedWeights


@dataclass(frozen=True)
class Parts:
    """Parts of a stage.

    `optimizer` is None for a stage without parameters; `clipping`, `correction` and `nesterov` are None if not
    requested, or if there is nothing to correct.
    """

    optimizer: Any
    clipping: Clipping | None
    correction: Any
    passes: Passes
    updates: Updates
    losses: Losses
    executor: Executor
    nesterov: Any


def put_together(
    post: Post,
    tensors: Tensors,
    settings: Settings,
    weights: VersionedWeights,
    passes: Passes,
    gradients: Gradients,
    counts: Sequence[int],
    optimizer: Any,
    correction: Any,
    step: Callable[[float], None],
    nesterov: Any = None,
    losses: Losses | None = None,
    ties: Ties | None = None,
) -> Parts:
    """Return the parts of a stage, from those that depend on its framework.

    `post`: connects the stages of this pipeline. `counts`: parameters of each stage. `step`, `ties`: see Updates.
    `losses`: None if stages have no replicas.
    """
    clipping = None
    if settings.max_norm is not None:
        clipping = Clipping(post, settings.max_norm, gradients, counts)
    tau_forward, _ = delays(settings.schedule_of(post.communicator.size))[post.communicator.rank]
    updates = Updates(weights, step, gradients, clipping, settings.annealing_steps, tau_forward, ties)
    mean = settings.loss_reduction == "mean"
    if losses is None:
        losses = Losses(post, Grid(post.communicator.size, 1), mean, together=True)
    executor = Executor(post, tensors, settings.n_microbatches, weights, passes, updates, losses, mean)
    return Parts(optimizer, clipping, correction, passes, updates, losses, executor, nesterov)
