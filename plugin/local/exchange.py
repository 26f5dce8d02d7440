"""The local exchange: gradients stay on their rank or in its site; models are averaged (paceline.local.settings)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.errors import UsageError
from paceline.exchange.base import AllExchanges, Exchange, Update
from paceline.exchange.joins import before_joins
from paceline.exchange.wire import Bucket, Key, Weights, Wire, Work
from paceline.local.outer import OuterUpdates
from paceline.local.settings import Local


class LocalExchange(Exchange):
    """Answer with the gradients of the rank, or with their mean in its site; `around` averages models."""

    settings: Local
    # A rank whose gradients overflow would make fewer updates than the others.
    unscaled = "needs equally many updates of all ranks"
    models_differ = True

    def __init__(self, settings: Local, wire: Wire, among: AllExchanges) -> None:
        super().__init__(settings, wire, among)
        if settings.delay and not wire.waits_later:
            raise UsageError(
                f"{wire.label}: delay={settings.delay} was given to a local exchange of Keras, where updates wait for "
                "the messages that they start.",
                "Leave delay out, or train with paceline.torch.",
            )
        self._members: set[Key] = set()  # keys of the gradients
        if settings.inside is not None:
            self.gradients_wire = wire.among(_checked(settings.inside, wire.label))
        self.around: OuterUpdates = OuterUpdates(settings, wire, self.ops, self.meet, lambda: self._members)
        before_joins(self)

    def start(self, bucket: Bucket, tensors: Sequence[Any]) -> Work:
        """Return the rank's own gradients, or start their average within the site."""
        self._members.update(bucket.members)
        if self.settings.inside is not None:
            return self.gradients_wire.start(bucket, tensors, exact=True)
        return lambda: list(tensors)

    def weigh(self, weighted: bool) -> None:
        """Note if gradients are weighted. Raises UsageError for weighted gradients that are averaged in a site."""
        if weighted and self.settings.inside is not None:
            raise UsageError(
                f"{self.wire.label}: a weight was given together with hvd.Local(inside=...).",
                "Set no weight, or leave inside out.",
            )
        super().weigh(weighted)

    def _expect(self, buckets: Mapping[str, Bucket], fresh: bool) -> None:
        self._members.update(member for bucket in buckets.values() for member in bucket.members)

    def drain(self) -> list[Update]:
        """Return []: nothing is in flight; models are averaged afterwards.

        Raises UserError, within a minute, if ranks have made different numbers of updates.
        """
        self.around.meet_before_drain()
        return []

    def _state(self) -> dict[str, Any] | None:
        """Return the updates since the last average and the outer optimizer's state; None before the first update.

        Every rank saves its own state, together with its own model.
        """
        around = self.around.state()
        if around is None:
            return None
        process_set = self.wire.process_set
        whose = {"rank": int(process_set.rank()), "ranks": int(process_set.size())}
        # An update without gradients, so that other exchanges, which would lose the state, refuse it.
        return {"k": self.settings.tag, **whose, "in_flight": [({}, 1.0)], self.around.key: around}

    def differs(self, state: dict[str, Any]) -> bool:
        """Return True unless all weights were averaged after the last update."""
        return bool(state.get(self.around.key, {}).get("updates"))

    def _load(self, state: dict[str, Any], buckets: Sequence[Bucket], weights: Weights) -> None:
        self.around.load(state.get(self.around.key), weights)


def _checked(process_set: Any, label: str) -> Any:
    """Return a process set over which this rank can average gradients. Raises UsageError for any other."""
    if getattr(process_set, "process_set_id", None) is None:
        raise UsageError(
            f"{label}: hvd.Local(inside={process_set!r}) was given, which is not a process set that Horovod knows.",
            "Give hvd.init(process_sets=[...]) the process sets of all sites, or call hvd.add_process_set on all.",
        )
    if not process_set.included():
        raise UsageError(
            f"{label}: hvd.Local(inside=...) was given the process set of ranks {list(process_set.ranks)}, which has "
            "not this rank.",
            "Give each rank the process set of its own site.",
        )
    return process_set
