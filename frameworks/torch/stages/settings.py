"""What a user asks of a pipeline beside the model, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.stages import schedules
from paceline.stages.schedule import Schedule
from paceline.torch.errors import UsageError


@dataclass(frozen=True)
class Settings:
    """Arguments of hvd.Pipeline that all ranks must give alike. Raises UserError for what cannot be."""

    schedule: str
    n_microbatches: int
    stages: str | Sequence[int | str]
    costs: Sequence[float] | None
    warmup_steps: int
    annealing_steps: int
    discrepancy: float | None
    max_norm: float | None
    loss_reduction: str
    recompute: bool

    def __post_init__(self) -> None:
        chosen = schedules.make(self.schedule, 1, self.n_microbatches)
        for name in ("warmup_steps", "annealing_steps"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise UsageError(f"{name}={value!r}: expected a whole number.", "0 switches it off.")
        if self.discrepancy is not None and not 0 < self.discrepancy < 1:
            raise UsageError(
                f"discrepancy={self.discrepancy!r}: expected a number between 0 and 1.", "None switches it off."
            )
        if self.max_norm is not None and not self.max_norm > 0:
            raise UsageError(f"max_norm={self.max_norm!r}: expected a positive number.", "None switches it off.")
        if self.loss_reduction not in ("mean", "sum"):
            raise UsageError(
                f"loss_reduction={self.loss_reduction!r} is not known.",
                'Use "mean" if loss returns a mean over rows, "sum" if it returns a sum.',
            )
        for name in ("warmup_steps", "annealing_steps", "discrepancy"):
            value = getattr(self, name)
            if value and chosen.synchronous:
                raise UsageError(
                    f"{name}={value} was given with schedule={self.schedule!r}, where no gradient is late.",
                    f"Leave {name}= out, or use an asynchronous schedule, such as pipemare.",
                )

    def schedule_of(self, stages: int) -> Schedule:
        """The one that was asked for."""
        return schedules.make(self.schedule, stages, self.n_microbatches)

    def warm_up_of(self, stages: int) -> Schedule:
        """That of T3's warm-up."""
        return schedules.make("1f1b", stages, self.n_microbatches)

    def terms(self) -> dict[str, Any]:
        """For comparison with other ranks."""
        given = dict(vars(self))
        for name in ("stages", "costs"):
            value = given[name]
            given[name] = value if value is None or isinstance(value, str) else list(value)
        return given
