"""PACELINE_EXCHANGE for scripts that use Horovod's modules: their wrappers become ours, of tapes and of Keras."""

from __future__ import annotations

import importlib
from typing import Any

import horovod.tensorflow

import paceline.tensorflow
from paceline.host.shims import keras3
from paceline.registry.agreement import resolve


def install() -> None:
    """Put ours in the place of Horovod's."""
    keras3.exchange = _of_keras
    horovod.tensorflow.DistributedOptimizer = paceline.tensorflow.DistributedOptimizer
    horovod.tensorflow.DistributedGradientTape = paceline.tensorflow.DistributedGradientTape
    horovod.tensorflow.PartialDistributedGradientTape = paceline.tensorflow.PartialDistributedGradientTape


def _of_keras(settings: Any) -> Any:
    make = importlib.import_module("paceline.keras.exchange.making").exchange_of(resolve(None))
    return make and make(settings)
