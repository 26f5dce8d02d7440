"""torch.distributed.pipelining over Gloo, with its defaults."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import pipelining

from paceline.examples.benchmarks.harness.connections import connect_torch
from paceline.examples.benchmarks.harness.place import Place
from paceline.examples.benchmarks.stages import models
from paceline.examples.benchmarks.stages.models import Case
from paceline.examples.benchmarks.stages.timed import Recorder
from paceline.examples.benchmarks.stages.worker import StageWorker, Training

SCHEDULES = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B}


def worker(place: Place, options: dict[str, Any]) -> StageWorker:
    """Connect through a file."""
    connect_torch(place)

    def prepare(case: Case, schedule: str, stages: list[nn.Module], recorder: Recorder) -> Training:
        module = stages[place.rank]
        stage = pipelining.PipelineStage(module, place.rank, case.stages, torch.device("cpu"))
        pipeline = SCHEDULES[schedule](stage, case.microbatches, loss_fn=models.loss_of)
        optimizer = models.optimizer_of(module.parameters())
        batch, target = models.batch_of(case)

        def step() -> float | None:
            optimizer.zero_grad(set_to_none=True)
            given = (batch,) if place.rank == 0 else ()
            losses: list[Tensor] = []
            if place.rank == case.stages - 1:
                pipeline.step(*given, target=target, losses=losses)
            else:
                pipeline.step(*given)
            optimizer.step()
            return float(torch.stack(losses).detach().mean()) if losses else None

        # Its first step infers the shapes of activations by extra passes, some without a backward pass.
        return Training(step, recorder.clear, lambda: 1, lambda: None)

    return StageWorker(prepare)
