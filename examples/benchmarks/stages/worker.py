"""A rank that trains one stage on the controller's order."""

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
    """Order to train the model of `case` from scratch by `schedule`: `case.fill` steps, then `steps` measured ones."""

    case: Case
    schedule: str
    steps: int


@dataclass(frozen=True)
class Trained:
    """Measurements of one stage over `microbatches` micro-batches.

    `wall_s`: total time; `busy_s`: the part in passes. `passes_s`: mean time of a forward and a backward pass together.
    `cpu_s`: processor time of all threads. `weight_copies`, `activations`: largest number of weight copies, and of
    micro-batches between their passes. `loss`: of the last mini-batch whose loss the stage knows.
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
    """One stage of a newly built pipeline.

    `step` trains with one mini-batch, always the same, and returns the loss if this stage knows one. `clear` is called
    when the pipeline is full. `weight_copies` returns the largest number of weight copies so far. `end` finishes all
    work in flight, so that the ranks can train by another schedule.
    """

    step: Callable[[], float | None]
    clear: Callable[[], None]
    weight_copies: Callable[[], int]
    end: Callable[[], None]


# Builds a stage from a case, a schedule's name, all stages, and this rank's recorder.
Prepare = Callable[[Case, str, list[Any], Recorder], Training]


class StageWorker:
    """A rank of one library, which can run all of its schedules."""

    hello = None

    def __init__(self, prepare: Prepare) -> None:
        self._prepare = prepare

    def answer(self, order: Train, control: Connection) -> Trained:
        """Train as ordered and return the measurements."""
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
