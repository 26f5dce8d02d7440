"""PACELINE_EXCHANGE for scripts that use Horovod's modules: their wrappers become ours, of tapes and of Keras."""

from __future__ import annotations

from typing import Any

import horovod.tensorflow

import paceline.tensorflow
from paceline.arguments import exchange_asked
from paceline.horovod.shims import keras3
from paceline.registry.making import maker
from paceline.tensorflow.exchange.adapter import TensorFlowAdapter


def install() -> None:
    """Put ours in the place of Horovod's."""
    keras3.exchange = _of_keras
    horovod.tensorflow.DistributedOptimizer = paceline.tensorflow.DistributedOptimizer
    horovod.tensorflow.DistributedGradientTape = paceline.tensorflow.DistributedGradientTape
    horovod.tensorflow.PartialDistributedGradientTape = paceline.tensorflow.PartialDistributedGradientTape


def _of_keras(settings: Any) -> Any:
    make = maker(exchange_asked(None), TensorFlowAdapter)
    return make and make(settings)
