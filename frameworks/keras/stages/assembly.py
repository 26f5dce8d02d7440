"""Assembly of a stage's parts, common to both backends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from paceline.keras.stages.observed import Scores
from paceline.keras.stages.stage import Stage
from paceline.stages.execution.clipping import Gradients
from paceline.stages.execution.executor import Passes
from paceline.stages.execution.finish import Finish
from paceline.stages.execution.parts import Parts, put_together
from paceline.stages.execution.posting import Post
from paceline.stages.execution.settings import Settings
from paceline.stages.execution.tensors import Tensors
from paceline.stages.execution.versions import VersionedWeights

Correction = TypeVar("Correction")


@dataclass(frozen=True)
class Assembly:
    """Everything that a backend needs to assemble the parts of a stage.

    `loss` takes targets and outputs. `counts`: number of trained weights of each stage. `taus`: delays of this stage's
    forward and backward passes, in updates.
    """

    post: Post
    settings: Settings
    stage: Stage
    optimizer: Any
    loss: Callable[[Any, Any], Any]
    tensors: Tensors
    counts: Sequence[int]
    taus: tuple[float, float]
    scores: Scores

    def correction(self, made: Callable[..., Correction], weights: Sequence[Any]) -> Correction | None:
        """Return the T2 correction that `made` constructs; None if it is off or has nothing to correct."""
        if self.settings.correction is None or self.taus[0] <= self.taus[1] or not weights:
            return None
        return made(weights, self.settings.correction, *self.taus)

    def finish(self, loss: Callable[[Any, Any], Any]) -> Finish:
        """Return the final step of this stage's passes; `loss` takes outputs and targets."""
        communicator = self.post.communicator
        return Finish(self.tensors, communicator.rank, communicator.rank == communicator.size - 1, loss)

    def parts(
        self,
        weights: VersionedWeights,
        passes: Passes,
        gradients: Gradients,
        correction: Any,
        step: Callable[[float], None],
    ) -> Parts:
        """Combine the backend's parts with the common ones."""
        return put_together(
            self.post,
            self.tensors,
            self.settings,
            weights,
            passes,
            gradients,
            self.counts,
            self.optimizer,
            correction,
            step,
        )
