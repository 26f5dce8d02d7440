"""The synchronous exchange: the result is the reduction of this very step's gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.exchange.base import Exchange
from paceline.exchange.wire import Bucket, Work


class SyncExchange(Exchange):
    """Reduces over the ranks with Horovod, after each gradient or group of gradients appears."""

    def start(self, bucket: Bucket, tensors: Sequence[Any]) -> Work:
        """See Exchange.start."""
        return self.wire.start(bucket, tensors)
