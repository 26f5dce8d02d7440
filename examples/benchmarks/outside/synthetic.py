"""Horovod's synthetic benchmarks of its examples: images per second of a network that computes on the processor."""

from __future__ import annotations

import re
from functools import partial

from paceline.errors import UserError
from paceline.examples.benchmarks.outside.program import Program, Rows, Run
from paceline.examples.benchmarks.outside.sources import HOROVOD_KERAS, HOROVOD_TORCH, Source
from paceline.examples.benchmarks.outside.systems import STOCK, TRAINING

_RANKS = "paceline.examples.benchmarks.outside.synthetic_ranks"
_BATCH = re.compile(r"Batch size: (\d+)")
_IMAGES = re.compile(r"Img/sec per CPU: ([\d.]+)")
_PER_ITERATION = 10  # steps that the programs time together


def _command(source: Source, warms_up: bool, run: Run) -> list[str]:
    settings = run.settings
    iterations = max(1, settings.steps // _PER_ITERATION)
    words = ["-m", _RANKS] if source.packages == HOROVOD_TORCH.packages else []
    words += [str(run.place / source.files[0]), "--no-cuda", "--model", run.input]
    words += ["--num-batches-per-iter", str(_PER_ITERATION)]
    if warms_up:
        words += ["--num-warmup-batches", str(settings.warm_up), "--num-iters", str(iterations)]
    else:
        # Its first iteration is the warm-up, as long as the others.
        words += ["--num-iters", str(1 + iterations)]
    return [*words, *settings.arguments]


def _read(run: Run, output: str) -> Rows:
    batch, images = _BATCH.search(output), _IMAGES.search(output)
    if batch is None or images is None or float(images[1]) == 0:
        raise UserError("Horovod's synthetic benchmark printed no speed.", f"Its last output:\n{output[-2000:]}")
    rate = float(images[1])
    return {f"{run.input}, batch of {batch[1]}": {"time_ms": 1e3 * int(batch[1]) / rate, "images_per_s": rate}}


TORCH_PROGRAM = Program(
    "Horovod's pytorch_synthetic_benchmark.py",
    HOROVOD_TORCH.find,
    TRAINING,
    (STOCK,),
    ("shufflenet_v2_x0_5",),
    partial(_command, HOROVOD_TORCH, True),
    _read,
)
KERAS_PROGRAM = Program(
    "Horovod's tensorflow2_keras_synthetic_benchmark.py",
    HOROVOD_KERAS.find,
    TRAINING,
    (STOCK,),
    ("MobileNetV3Small",),
    partial(_command, HOROVOD_KERAS, False),
    _read,
)
