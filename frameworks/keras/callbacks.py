"""Horovod's callbacks, under both backends."""

from __future__ import annotations

from paceline.keras.backend import horovod_callbacks

BroadcastGlobalVariablesCallback = horovod_callbacks.BroadcastGlobalVariablesCallback
MetricAverageCallback = horovod_callbacks.MetricAverageCallback
LearningRateScheduleCallback = horovod_callbacks.LearningRateScheduleCallback
LearningRateWarmupCallback = horovod_callbacks.LearningRateWarmupCallback
BestModelCheckpoint = horovod_callbacks.BestModelCheckpoint

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]
