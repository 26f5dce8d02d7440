"""TensorFlow: `import paceline.tensorflow as hvd` in place of `import horovod.tensorflow as hvd`.

Everything public in horovod.tensorflow is here. `DistributedGradientTape`, `PartialDistributedGradientTape` and
`DistributedOptimizer` are ours, with Horovod's arguments; docs/guides/tensorflow.md lists what is new.
"""

from __future__ import annotations

from typing import Any

from paceline.collectives.encoded import with_codec
from paceline.exchange.averaging import averager
from paceline.exchange.means import mean_of_arrays
from paceline.exchange.replicas import checker
from paceline.fusion.adapters import FusionReport as FusionReport
from paceline.fusion.adapters import reporter
from paceline.keras3 import on_tensorflow as wire
from paceline.keras3 import settings
from paceline.metrics.values import metrics_of
from paceline.native.library import loaded
from paceline.partial.stats import ExchangeStats as ExchangeStats
from paceline.partial.stats import reader
from paceline.registry.exchanges import SETTINGS
from paceline.tensorflow.collectives.reduce import reduce as reduce
from paceline.tensorflow.horovod import horovod_tensorflow
from paceline.tensorflow.optimizer import DistributedOptimizer as DistributedOptimizer
from paceline.tensorflow.partial.operations import PartialResult as PartialResult
from paceline.tensorflow.partial.operations import flush_partial as flush_partial
from paceline.tensorflow.partial.operations import partial_allreduce as partial_allreduce
from paceline.tensorflow.partial.operations import partial_allreduce_async as partial_allreduce_async
from paceline.tensorflow.tape.exchange import drain_tape as drain_tape
from paceline.tensorflow.tape.exchange import load_tape_in_flight as load_tape_in_flight
from paceline.tensorflow.tape.exchange import tape_in_flight as tape_in_flight
from paceline.tensorflow.tape.tape import DistributedGradientTape as DistributedGradientTape
from paceline.tensorflow.tape.tape import PartialDistributedGradientTape as PartialDistributedGradientTape

allreduce = with_codec(horovod_tensorflow, "allreduce", wire.call_named)
grouped_allreduce = with_codec(horovod_tensorflow, "grouped_allreduce", wire.call_named)
globals().update(SETTINGS)  # hvd.Pipelined and so on
average_variables = averager(horovod_tensorflow, wire, settings)
mean = mean_of_arrays(wire.average)
check_replicas = checker(lambda: loaded("tensorflow"), lambda variable: variable.numpy())
fusion_report = reporter("tensorflow")
exchange_stats = reader("tensorflow")
metrics = metrics_of("tensorflow")

_OURS = [
    *SETTINGS,
    "DistributedGradientTape",
    "DistributedOptimizer",
    "ExchangeStats",
    "FusionReport",
    "PartialDistributedGradientTape",
    "PartialResult",
    "allreduce",
    "average_variables",
    "check_replicas",
    "drain_tape",
    "exchange_stats",
    "flush_partial",
    "fusion_report",
    "metrics",
    "grouped_allreduce",
    "load_tape_in_flight",
    "mean",
    "partial_allreduce",
    "partial_allreduce_async",
    "reduce",
    "tape_in_flight",
]

__all__ = sorted({*_OURS, *(name for name in dir(horovod_tensorflow) if not name.startswith("_"))})


def __getattr__(name: str) -> Any:
    """Return Horovod's own names, with their current values."""
    return getattr(horovod_tensorflow, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
