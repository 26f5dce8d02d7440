"""Keras 3: `import paceline.keras as hvd` in place of `import horovod.keras as hvd`.

Works with Keras on TensorFlow and on PyTorch (KERAS_BACKEND=torch, without TensorFlow). Everything that horovod.keras
and horovod.tensorflow.keras offer is here; see docs/guides/keras.md.
"""

from __future__ import annotations

from typing import Any

from paceline.errors import UsageError as UsageError
from paceline.exchange.averaging import averager
from paceline.exchange.means import mean_of_arrays
from paceline.exchange.replicas import checker
from paceline.fusion.adapters import FusionReport as FusionReport
from paceline.fusion.adapters import reporter
from paceline.keras import callbacks as callbacks
from paceline.keras import elastic as elastic
from paceline.keras.backend import horovod_module, keras, wire
from paceline.keras.operations import allgather as allgather
from paceline.keras.operations import allreduce as allreduce
from paceline.keras.operations import broadcast as broadcast
from paceline.keras.operations import broadcast_global_variables as broadcast_global_variables
from paceline.keras.operations import broadcast_variables as broadcast_variables
from paceline.keras.operations import reducescatter as reducescatter
from paceline.keras.optimizer import DistributedOptimizer as DistributedOptimizer
from paceline.keras.optimizer import PartialDistributedOptimizer as PartialDistributedOptimizer
from paceline.keras.optimizer import load_model as load_model
from paceline.keras.stages.pipeline import Pipeline as Pipeline
from paceline.keras3 import settings
from paceline.keras3.uneven import uneven as uneven
from paceline.metrics.values import metrics_of
from paceline.native.library import loaded
from paceline.partial.stats import ExchangeStats as ExchangeStats
from paceline.partial.stats import reader
from paceline.registry.exchanges import SETTINGS

globals().update(SETTINGS)  # hvd.Pipelined and so on
average_variables = averager(horovod_module, wire, settings)
mean = mean_of_arrays(wire.average)
check_replicas = checker(lambda: loaded(wire.LIBRARY), keras.ops.convert_to_numpy)
fusion_report = reporter(keras.backend.backend())
exchange_stats = reader(keras.backend.backend())
metrics = metrics_of(keras.backend.backend())

_OURS = [
    *SETTINGS,
    "DistributedOptimizer",
    "ExchangeStats",
    "FusionReport",
    "PartialDistributedOptimizer",
    "Pipeline",
    "UsageError",
    "allgather",
    "allreduce",
    "average_variables",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_variables",
    "callbacks",
    "check_replicas",
    "elastic",
    "exchange_stats",
    "fusion_report",
    "metrics",
    "load_model",
    "mean",
    "reducescatter",
    "uneven",
]

# The same in Horovod's modules for TensorFlow and for PyTorch.
_HOROVODS = [
    "Adasum",
    "Average",
    "Compression",
    "Max",
    "Min",
    "Product",
    "ProcessSet",
    "Sum",
    "add_process_set",
    "allgather_object",
    "broadcast_object",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]

__all__ = sorted([*_OURS, *_HOROVODS])


def __getattr__(name: str) -> Any:
    """Return Horovod's own names, with their current values."""
    if name in _HOROVODS:
        return getattr(horovod_module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
