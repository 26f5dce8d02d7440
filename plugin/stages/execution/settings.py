"""Checked settings of a pipeline, in addition to the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.errors import UsageError
from paceline.stages import schedules
from paceline.stages.schedule import Schedule


@dataclass(frozen=True)
class Settings:
    """Arguments of hvd.Pipeline that must be equal on all ranks. Raises UserError for invalid ones."""

    schedule: str
    n_microbatches: int
    stages: str | Sequence[int | str]
    costs: Sequence[float] | None
    warmup_steps: int
    annealing_steps: int
    correction: float | None
    max_norm: float | None
    loss_reduction: str
    recompute: bool
    nesterov: float | None = None
    update_every: int = 1
    replicas: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.schedule, str):
            known = ", ".join(schedules.SCHEDULES)
            raise UsageError(f"schedule={self.schedule!r}: expected a name.", f"Choose one of {known}.")
        if not _whole(self.n_microbatches):
            raise UsageError(f"n_microbatches={self.n_microbatches!r}: expected a whole number.", "Give 1 at least.")
        chosen = schedules.make(self.schedule, 1, self.n_microbatches)
        if not (isinstance(self.stages, str) or _all(self.stages, lambda one: isinstance(one, str) or _whole(one))):
            raise UsageError(
                f'stages={self.stages!r}: expected "auto", or a list of numbers or names of layers.',
                "Name the first layers of stages 1 to P-1.",
            )
        if not (self.costs is None or _all(self.costs, _number)):
            raise UsageError(f"costs={self.costs!r}: expected a list of numbers.", "Give one for each layer.")
        if not _whole(self.replicas) or self.replicas < 1:
            raise UsageError(f"replicas={self.replicas!r}: expected a whole number.", "Give 1 at least.")
        for name in ("warmup_steps", "annealing_steps"):
            value = getattr(self, name)
            if not _whole(value) or value < 0:
                raise UsageError(f"{name}={value!r}: expected a whole number.", "0 switches it off.")
        if self.correction is not None and not (_number(self.correction) and 0 < self.correction < 1):
            raise UsageError(
                f"correction={self.correction!r}: expected a number between 0 and 1.", "None switches it off."
            )
        if self.nesterov is not None and not (_number(self.nesterov) and 0 < self.nesterov < 1):
            raise UsageError(f"nesterov={self.nesterov!r}: expected a number between 0 and 1.", "None switches it off.")
        if not _whole(self.update_every) or self.update_every < 1:
            raise UsageError(f"update_every={self.update_every!r}: expected a whole number.", "Give 1 at least.")
        if self.max_norm is not None and not (_number(self.max_norm) and self.max_norm > 0):
            raise UsageError(f"max_norm={self.max_norm!r}: expected a positive number.", "None switches it off.")
        if self.loss_reduction not in ("mean", "sum"):
            raise UsageError(
                f"loss_reduction={self.loss_reduction!r} is not known.",
                'Use "mean" if loss returns a mean over rows, "sum" if it returns a sum.',
            )
        for name in ("warmup_steps", "annealing_steps", "correction", "nesterov"):
            value = getattr(self, name)
            if value and chosen.synchronous:
                raise UsageError(
                    f"{name}={value} was given with schedule={self.schedule!r}, where no gradient is late.",
                    f"Leave {name}= out, or use an asynchronous schedule, such as pipemare.",
                )

    def schedule_of(self, stages: int) -> Schedule:
        """Return the requested schedule; its mini-batches are those of an update."""
        return schedules.make(self.schedule, stages, self.n_microbatches * self.update_every)

    def warm_up_of(self, stages: int) -> Schedule:
        """Return the schedule of T3's warm-up."""
        return schedules.make("1f1b", stages, self.n_microbatches * self.update_every)

    def terms(self) -> dict[str, Any]:
        """Return the settings for comparison with other ranks."""
        given = dict(vars(self))
        for name in ("stages", "costs"):
            value = given[name]
            given[name] = value if value is None or isinstance(value, str) else list(value)
        return given


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return _whole(value) or isinstance(value, float)


def _all(values: Any, are: Callable[[Any], bool]) -> bool:
    return isinstance(values, Sequence) and all(are(one) for one in values)
