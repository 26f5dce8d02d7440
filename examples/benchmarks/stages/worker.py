"""A rank that trains one stage when the controller orders it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from paceline.examples.benchmarks.harness import usage
from paceline.examples.benchmarks.stages import models
from paceline.examples.benchmarks.stages.models import Case
from paceline.examples.benchmarks.stages.timed import Recorder, Span, overlap_s


@dataclass(frozen=True)
class Train:
    """Train the model of `case` from its beginning by `schedule`: `case.fill` steps, then `steps` measured ones."""

    case: Case
    schedule: str
    steps: int


@dataclass(frozen=True)
class Trained:
    """What one stage measured over `microbatches` micro-batches.

    Of `wall_s` it was `busy_s` in passes, which took `passes_s` each, forward and backward together. `cpu_s`: processor
    time of all threads. `weight_copies` and `activations` (micro-batches between their passes): the most that it held.
    `loss`: of the last mini-batch that the stage knows it of.
    """

    microbatches: int
    wall_s: float
    busy_s: float
    passes_s: float
    cpu_s: float
    weight_copies: int
    activations: int
    loss: float | None


@dataclass(frozen=True)
class Training:
    """One stage of a pipeline that has just been built.

    `step` trains with one mini-batch, always the same, and returns a loss if this stage knows one. `clear` is called
    when the pipeline is full. `weight_copies` returns the most sets of weights that the stage had. `end` finishes what
    is in flight; the ranks can train by another schedule then.
    """

    step: Callable[[], float | None]
    clear: Callable[[], None]
    weight_copies: Callable[[], int]
    end: Callable[[], None]


# Builds a stage, of a case, a schedule's name, all stages and the recorder of this rank's.
Prepare = Callable[[Case, str, list[Any], Recorder], Training]


class StageWorker:
    """A rank of one library, which follows all of its schedules."""

    hello = None

    def __init__(self, prepare: Prepare) -> None:
        self._prepare = prepare

    def answer(self, order: Train, control: Connection) -> Trained:
        """Train."""
        case, recorder = order.case, Recorder()
        training = self._prepare(case, order.schedule, models.stages_of(case, recorder), recorder)
        for _ in range(case.fill):
            training.step()
        training.clear()
        used, begin_s = usage.process(), time.monotonic()
        for _ in range(order.steps):
            loss = training.step()
        end_s, used = time.monotonic(), usage.process().since(used)
        spans = recorder.forwards + recorder.backwards
        trained = Trained(
            order.steps * case.microbatches,
            end_s - begin_s,
            overlap_s(spans, begin_s, end_s),
            _mean_s(recorder.forwards) + _mean_s(recorder.backwards),
            used.cpu_s,
            training.weight_copies(),
            recorder.most_held,
            loss,
        )
        training.end()
        return trained


def _mean_s(spans: list[Span]) -> float:
    return sum(end - begin for begin, end in spans) / len(spans) if spans else 0.0
