"""The local exchange: gradients stay on their rank, models are averaged (see paceline.local.settings)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.exchange.base import AllExchanges, Exchange, Update
from paceline.exchange.wire import Bucket, Key, Weights, Wire, Work
from paceline.local.outer import OuterUpdates
from paceline.local.settings import Local


class LocalExchange(Exchange):
    """Answers with the gradients that were handed in; all that travels is the models, in `around`."""

    settings: Local
    # A rank whose gradients overflow would make fewer updates than the others.
    unscaled = "needs equally many updates of all ranks"
    models_differ = True

    def __init__(self, settings: Local, wire: Wire, among: AllExchanges) -> None:
        super().__init__(settings, wire, among)
        self._members: set[Key] = set()  # whose gradients would travel
        self.around: OuterUpdates = OuterUpdates(settings, wire, self.ops, self.meet, lambda: self._members)

    def start(self, bucket: Bucket, tensors: Sequence[Any]) -> Work:
        """See Exchange.start."""
        self._members.update(bucket.members)
        return lambda: list(tensors)

    def _expect(self, buckets: Mapping[str, Bucket], fresh: bool) -> None:
        self._members.update(member for bucket in buckets.values() for member in bucket.members)

    def drain(self) -> list[Update]:
        """Nothing is in flight; models are averaged afterwards.

        Raises UserError, within a minute, where ranks have made unequally many updates.
        """
        self.around.meet_before_drain()
        return []

    def _state(self) -> dict[str, Any] | None:
        """This rank's updates since the last average, and what the outer optimizer has; None before the first update.

        To go on from, every rank saves its own, and its own model.
        """
        around = self.around.state()
        if around is None:
            return None
        process_set = self.wire.process_set
        whose = {"rank": int(process_set.rank()), "ranks": int(process_set.size())}
        # An update without gradients: other exchanges refuse the state, which they would lose.
        return {"k": self.settings.tag, **whose, "in_flight": [({}, 1.0)], self.around.key: around}

    def differs(self, state: dict[str, Any]) -> bool:
        """See Exchange.differs: right after an average all ranks have the same."""
        return bool(state.get(self.around.key, {}).get("updates"))

    def _load(self, state: dict[str, Any], buckets: Sequence[Bucket], weights: Weights) -> None:
        self.around.load(state.get(self.around.key), weights)
