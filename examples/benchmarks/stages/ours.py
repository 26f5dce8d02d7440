"""hvd.Pipeline, on Horovod's connections over Gloo."""

from __future__ import annotations

import os

from torch import nn

from paceline.examples.benchmarks.harness.assignment import Place
from paceline.examples.benchmarks.harness.system_horovod import connect
from paceline.examples.benchmarks.stages import models
from paceline.examples.benchmarks.stages.cases import Case
from paceline.examples.benchmarks.stages.systems import Prepare, Training
from paceline.examples.benchmarks.stages.timed import Recorder

# Nobody asks for collectives here: as docs/stages.md recommends, background threads look for some less often than every
# millisecond, Horovod's default.
CYCLE_MS = 20


def setup(place: Place) -> Prepare:
    """Connect through a rendezvous server in rank 0. HOROVOD_CYCLE_TIME is CYCLE_MS unless it is set."""
    os.environ.setdefault("HOROVOD_CYCLE_TIME", str(CYCLE_MS))
    connect(place)
    import paceline.torch as hvd

    def prepare(case: Case, schedule: str, stages: list[nn.Module], recorder: Recorder) -> Training:
        pipeline = hvd.Pipeline(
            stages,
            models.optimizer_of,
            models.loss_of,
            case.microbatches,
            schedule,
            stages=list(range(1, case.stages)),
        )
        batch, target = models.batch_of(case)

        def end() -> None:
            pipeline.drain()
            pipeline.close()

        return Training(
            lambda: float(pipeline.step(batch, target)), recorder.begin, lambda: pipeline.most_weight_copies, end
        )

    return prepare
