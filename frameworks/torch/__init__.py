"""PyTorch: `import paceline.torch as hvd` in place of `import horovod.torch as hvd`.

Everything public in horovod.torch is here. `DistributedOptimizer`, `broadcast_parameters` and
`broadcast_optimizer_state` are ours, with Horovod's arguments; `broadcast_state` and others are new.
"""

from __future__ import annotations

from typing import Any

from paceline.collectives.encoded import with_codec
from paceline.fusion.adapters import FusionReport as FusionReport
from paceline.fusion.adapters import reporter
from paceline.metrics.values import metrics_of
from paceline.partial.stats import ExchangeStats as ExchangeStats
from paceline.partial.stats import reader
from paceline.registry.exchanges import SETTINGS
from paceline.torch.collectives.mean import mean as mean
from paceline.torch.collectives.reduce import reduce as reduce
from paceline.torch.collectives.reduce import reduce_ as reduce_
from paceline.torch.collectives.reduce import reduce_async as reduce_async
from paceline.torch.collectives.reduce import reduce_async_ as reduce_async_
from paceline.torch.errors import UsageError as UsageError
from paceline.torch.horovod import horovod_torch
from paceline.torch.optimizer.combined_first import combine_first
from paceline.torch.optimizer.distributed import DistributedOptimizer as DistributedOptimizer
from paceline.torch.optimizer.state import broadcast_optimizer_state as broadcast_optimizer_state
from paceline.torch.optimizer.state import broadcast_state as broadcast_state
from paceline.torch.optimizer.state import register_elastic_handlers
from paceline.torch.optimizer.uneven import finish_uneven as finish_uneven
from paceline.torch.optimizer.uneven import samples_of as samples_of
from paceline.torch.optimizer.uneven import uneven as uneven
from paceline.torch.optimizer.wrapper import WrappedOptimizer as WrappedOptimizer
from paceline.torch.partial.operations import PartialResult as PartialResult
from paceline.torch.partial.operations import flush_partial as flush_partial
from paceline.torch.partial.operations import partial_allreduce as partial_allreduce
from paceline.torch.partial.operations import partial_allreduce_async as partial_allreduce_async
from paceline.torch.stages.pipeline import Pipeline as Pipeline
from paceline.torch.state.broadcasts import broadcast_parameters as broadcast_parameters
from paceline.torch.state.replicas import check_replicas as check_replicas

_ALLREDUCES = [f"{kind}allreduce{form}" for kind in ("", "grouped_") for form in ("", "_", "_async", "_async_")]
# hvd.Pipelined and so on; and Horovod's module `optimizer` instead of our folder of that name.
globals().update(SETTINGS, optimizer=horovod_torch.optimizer)
globals().update({name: with_codec(horovod_torch, name) for name in _ALLREDUCES})
fusion_report = reporter("torch")
exchange_stats = reader("torch")
metrics = metrics_of("torch")

_OURS = [
    *SETTINGS,
    *_ALLREDUCES,
    "DistributedOptimizer",
    "ExchangeStats",
    "FusionReport",
    "PartialResult",
    "Pipeline",
    "UsageError",
    "WrappedOptimizer",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "broadcast_state",
    "check_replicas",
    "flush_partial",
    "exchange_stats",
    "fusion_report",
    "metrics",
    "partial_allreduce",
    "mean",
    "partial_allreduce_async",
    "reduce",
    "reduce_",
    "reduce_async",
    "reduce_async_",
    "finish_uneven",
    "samples_of",
    "uneven",
]

__all__ = sorted({*_OURS, *(name for name in dir(horovod_torch) if not name.startswith("_"))})


def __getattr__(name: str) -> Any:
    """Return Horovod's own names, with their current values."""
    return getattr(horovod_torch, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


combine_first()
register_elastic_handlers()
