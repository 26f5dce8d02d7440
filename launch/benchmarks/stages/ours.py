"""hvd.Pipeline, on Horovod's connections over Gloo."""

from __future__ import annotations

from torch import nn

from paceline.launch.benchmarks.assignment import Place
from paceline.launch.benchmarks.stages import models
from paceline.launch.benchmarks.stages.cases import Case
from paceline.launch.benchmarks.stages.systems import Prepare, Training
from paceline.launch.benchmarks.stages.timed import Recorder
from paceline.launch.benchmarks.system_horovod import connect


def setup(place: Place) -> Prepare:
    """Connect through a rendezvous server in rank 0."""
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
