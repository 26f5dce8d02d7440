"""Training steps of a Keras network: settings, systems, ratios and columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import msgspec

from paceline.examples.benchmarks.harness.hosts import open_hosts
from paceline.examples.benchmarks.harness.ratio import each_over
from paceline.examples.benchmarks.harness.report import Benchmark, Column, Measured
from paceline.examples.benchmarks.harness.system import System, check_known
from paceline.examples.benchmarks.harness.turns import Limits, Log, compare
from paceline.examples.benchmarks.networks import models
from paceline.examples.benchmarks.outside.systems import STOCK, TRAINING
from paceline.examples.benchmarks.steps.benchmark import where
from paceline.examples.benchmarks.steps.team import StepTeam

_TRAINING = "paceline.examples.benchmarks.keras_steps.training"
_TORCH = "torch_"  # prefix of systems with Keras on PyTorch
DDP, ALONE = "torch_ddp", "alone"
_PLANNED, _LATE, _APART = {"planned": True}, {"age": 1}, {"equal": False}
# Name -> function of training.py, environment, options of the worker. With the prefix torch_, Keras runs on PyTorch.
_HOROVOD: dict[str, tuple[str, Mapping[str, str], Mapping[str, Any]]] = {
    STOCK: ("horovod", TRAINING[STOCK], {}),
    "optimal": ("paceline", TRAINING["optimal"], _PLANNED),
    "pipelined": ("paceline", TRAINING["pipelined"], _LATE),
    "split": ("paceline", TRAINING["split"], {}),
    "local": ("paceline", TRAINING["local"], _APART),
    "q8": ("paceline", TRAINING["q8"], {}),
    ALONE: ("alone", {}, _APART),
}
SYSTEMS = {
    **_HOROVOD,
    **{f"{_TORCH}{name}": row for name, row in _HOROVOD.items()},
    f"{_TORCH}{STOCK}": ("paceline", TRAINING[STOCK], {}),  # horovod.keras is for TensorFlow alone
    DDP: ("ddp", {}, {}),
}


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`hosts` emulated hosts (1: this machine), `ranks` in all, links of `rate` and `latency`.

    `batch` images of each rank.
    """

    hosts: int = 2
    ranks: int | None = None
    rate: str | None = "200mbit"
    latency: str | None = None
    systems: tuple[str, ...] = (STOCK, "optimal", "pipelined", ALONE)
    batch: int = 8

    @property
    def size(self) -> int:
        """Total number of ranks: one per host, two on this machine."""
        return self.ranks or (self.hosts if self.hosts > 1 else 2)


def find(name: str, batch: int) -> System:
    """Return a system of the table."""
    training, env, options = SYSTEMS[name]
    library = "torch" if name.startswith(_TORCH) else "tensorflow"
    backend = {"KERAS_BACKEND": library, "TF_CPP_MIN_LOG_LEVEL": "2"}
    threads = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "2"}
    setup = "paceline.examples.benchmarks.keras_steps.worker:KerasWorker"
    words = {"training": f"{_TRAINING}:{training}", "batch": batch, "library": library, **options}
    return System(name, setup, {**backend, **threads, **env}, words)


def measure(settings: Settings, limits: Limits, log: Log) -> Iterator[Measured]:
    """Measure the systems in turn."""
    check_known(settings.systems, SYSTEMS)
    rate = settings.rate if settings.hosts > 1 else None
    with open_hosts(settings.hosts, rate, settings.latency) as hosts, ExitStack() as stack:
        teams = {}
        for name in settings.systems:
            log(f"starting the ranks of {name}")
            teams[name] = stack.enter_context(StepTeam(find(name, settings.batch), settings.size, hosts, log))
        ours = [name for name in settings.systems if name.removeprefix(_TORCH) != ALONE]
        ratios = each_over(ours, [STOCK, f"{_TORCH}{STOCK}", DDP], "step_ms")
        takes = {name: team.take for name, team in teams.items()}
        comparison = compare(takes, "step_ms", ratios, limits, log, "Keras")
    model = models.find("resnet20")
    facts = {
        "model": model.name, "tensors": model.tensors, "parameters": model.parameters, "hosts": settings.hosts,
        "ranks": settings.size, "rate": rate, "latency": settings.latency, "batch": settings.batch,
    }  # fmt: skip
    title = (
        f"ResNet-20 in Keras, {settings.batch} images per rank: "
        f"{where(settings.size, settings.hosts, rate, settings.latency)}; {model.tensors} tensors, "
        f"{model.parameters / 1e6:.2f} M parameters, computed on the processor"
    )
    yield Measured(title, comparison, facts)


BENCHMARK = Benchmark(
    "Training steps in Keras",
    Settings,
    measure,
    "per step",
    (
        Column("time ms", "step_ms"),
        Column("CPU ms", "cpu_ms"),
        Column("rounds", "coordination_rounds"),
        Column("messages", "messages"),
        Column("payload MB", "bytes", ".2f", 1e6),
        Column("sent MB/host", "sent_bytes", ".2f", 1e6),
    ),
    start_s=90.0,
)
