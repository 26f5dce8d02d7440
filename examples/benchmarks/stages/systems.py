"""What is compared: schedules of two libraries, each with ranks of its own that follow all of its schedules.

A later library is an entry in SETUPS. Its `setup` function is called on every rank, once, with the rank's place; it
connects the ranks and returns how to train by one of its schedules.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.config import nearest
from paceline.errors import UserError
from paceline.examples.benchmarks.harness.assignment import Place
from paceline.examples.benchmarks.stages.cases import Case
from paceline.stages import schedules

PACELINE, TORCH = "paceline", "torch"
_HERE = "paceline.examples.benchmarks.stages"
SETUPS = {PACELINE: f"{_HERE}.ours:setup", TORCH: f"{_HERE}.theirs:setup"}
SYNCHRONOUS = ("gpipe", "1f1b")


@dataclass(frozen=True)
class Training:
    """One stage of a pipeline that has just been built.

    `step` trains with one mini-batch, always the same, and returns a loss if this stage knows one. `clear` is called
    when the pipeline is full. `weight_copies` says how many sets of weights the stage had at most. `end` finishes what
    is under way; the ranks can train by another schedule then.
    """

    step: Callable[[], float | None]
    clear: Callable[[], None]
    weight_copies: Callable[[], int]
    end: Callable[[], None]


# Makes one of a case, a schedule's name, all stages and the recorder of this rank's.
Prepare = Callable[[Case, str, list[Any], Any], Training]
Setup = Callable[[Place], Prepare]


@dataclass(frozen=True)
class StageSystem:
    """A schedule of a library."""

    library: str
    schedule: str

    @property
    def name(self) -> str:
        """Paceline's have that of the schedule."""
        return self.schedule if self.library == PACELINE else f"{self.library}_{self.schedule}"

    def refusal(self, stages: int, microbatches: int) -> str:
        """Why it cannot be measured so; "" if it can."""
        if self.library == TORCH and self.schedule == "1f1b" and microbatches < stages:
            return f"torch.distributed.pipelining's 1F1B takes {stages} micro-batches or more for {stages} stages"
        return ""


SYSTEMS: dict[str, StageSystem] = {
    system.name: system
    for system in (
        *(StageSystem(PACELINE, name) for name in schedules.SCHEDULES),
        *(StageSystem(TORCH, name) for name in SYNCHRONOUS),
    )
}


def find(name: str) -> StageSystem:
    """The system `name`; raises UserError for an unknown one."""
    if name not in SYSTEMS:
        raise UserError(f"There is no system {name!r}.", nearest(name, list(SYSTEMS)))
    return SYSTEMS[name]


def ratios(names: Sequence[str]) -> list[tuple[str, str]]:
    """Whose throughput is set against whose, of those that are measured."""
    late = ("pipemare", "pipemare_eager")
    ours = [(one, other) for one in late for other in SYNCHRONOUS]
    wanted = [*ours, *((one, f"{TORCH}_{one}") for one in SYNCHRONOUS)]
    return [pair for pair in wanted if set(pair) <= set(names)]


def load(setup: str) -> Setup:
    """The setup function that "module:function" names."""
    module, _, function = setup.partition(":")
    loaded: Setup = getattr(importlib.import_module(module), function)
    return loaded
