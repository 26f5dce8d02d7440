"""hvd.Pipeline, on Horovod's connections over Gloo."""

from __future__ import annotations

import os
from typing import Any

from torch import nn

from paceline.examples.benchmarks.harness.connections import connect_horovod
from paceline.examples.benchmarks.harness.place import Place
from paceline.examples.benchmarks.stages import models
from paceline.examples.benchmarks.stages.models import Case
from paceline.examples.benchmarks.stages.timed import Recorder
from paceline.examples.benchmarks.stages.worker import StageWorker, Training

# As docs/methods/stages.md recommends: no collectives are called, so background threads may poll less often.
CYCLE_MS = 20


def worker(place: Place, options: dict[str, Any]) -> StageWorker:
    """Connect. HOROVOD_CYCLE_TIME is CYCLE_MS unless it is set."""
    os.environ.setdefault("HOROVOD_CYCLE_TIME", str(CYCLE_MS))
    connect_horovod(place)
    return StageWorker(_prepare)


def _prepare(case: Case, schedule: str, stages: list[nn.Module], recorder: Recorder) -> Training:
    import paceline.torch as hvd

    at = list(range(1, case.stages))
    pipeline = hvd.Pipeline(stages, models.optimizer_of, models.loss_of, case.microbatches, schedule, stages=at)
    batch, target = models.batch_of(case)

    def end() -> None:
        pipeline.drain()
        pipeline.close()

    def step() -> float:
        return float(pipeline.step(batch, target))

    return Training(step, recorder.begin, lambda: pipeline.most_weight_copies, end)
