"""The synchronous exchange: the result is the reduction of the same step's gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.exchange.base import Exchange
from paceline.exchange.wire import Bucket, Work


class SyncExchange(Exchange):
    """Reduce over the ranks with Horovod, as soon as a gradient or a group of gradients is ready."""

    def start(self, bucket: Bucket, tensors: Sequence[Any]) -> Work:
        """Start to reduce `tensors`."""
        return self.wire.start(bucket, tensors)
