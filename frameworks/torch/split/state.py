"""Sharded optimizer state: each rank holds the state of the parameters, or of the shards, that it updates.

Names follow torch.distributed.optim.ZeroRedundancyOptimizer.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from paceline.split.exchange import EVERYONE, SplitExchange
from paceline.split.owners import Owners
from paceline.torch.errors import UsageError
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.names import ParameterNames
from paceline.torch.split.shards import Shards, joined
from paceline.torch.state.broadcasts import broadcast_structure

# Key of local_state_dict(): the rank, the number of ranks and the owners.
SHARE = "paceline_split"


def check(optimizer: torch.optim.Optimizer, independent: bool) -> None:
    """Raise UsageError for an optimizer whose update of a parameter may depend on other parameters."""
    kind = type(optimizer)
    torchs = kind.__module__.partition(".optim")[0] == "torch"
    if isinstance(optimizer, torch.optim.LBFGS) or not (torchs or independent):
        known = isinstance(optimizer, torch.optim.LBFGS)
        raise UsageError(
            f'exchange="split" was given together with {kind.__name__}, '
            + ("whose update" if known else "of which nobody has said that its update")
            + (" of a parameter depends on all others." if known else " of a parameter depends on this one alone."),
            'Use exchange="sync"' + ("." if known else ", or exchange=hvd.Split(independent=True) if it does."),
        )


class SharedState:
    """The part of the state of `held` on this rank, and its collection from all ranks."""

    def __init__(self, held: torch.optim.Optimizer, names: ParameterNames, exchange: SplitExchange) -> None:
        self._held = held
        self._names = names
        self._exchange = exchange
        self._whole: dict[Any, Any] | None = None
        self._collected = 0  # number of updates at that time

    @property
    def partial(self) -> bool:
        """True if other ranks hold state that this rank lacks."""
        return self._exchange.updates > 0

    @property
    def lost(self) -> bool:
        """True if ranks of a previous world held a part of the state."""
        return self._exchange.stale

    def hold(self) -> None:
        """Collect the whole state on every rank."""
        self.consolidate(None)
        self._held.load_state_dict(self.state_dict())
        self.load({})

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state. Raises UsageError unless it was collected since the last update."""
        if not self.partial:
            return self._held.state_dict()
        if self._whole is None or self._collected != self._exchange.updates:
            raise UsageError(
                f"state_dict() was called on rank {horovod.rank()}, which holds the state of its own parameters only.",
                "Call consolidate_state_dict() on all ranks before state_dict() on rank 0, or save local_state_dict() "
                "on every rank.",
            )
        return {**self._held.state_dict(), "state": self._whole}

    def consolidate(self, to: int | None) -> None:
        """Collect the whole state on rank `to`, or on all ranks. All ranks must call it."""
        exchange, process_set = self._exchange, self._exchange.wire.process_set
        here = self._held.state_dict()["state"]
        parameters, owners = self._parameters(), self._owners_by_number()
        keeps = to is None or to == horovod.rank()
        whole: dict[Any, Any] = {}
        pieces: dict[Any, list[Any]] = {}
        for owner, root in enumerate(process_set.ranks):
            # State that all ranks have, as with sparse gradients, comes from the first rank.
            own = {number: one for number, one in here.items() if owners[number] in (owner, EVERYONE) or owner == 0}
            ranges = {one: self._shards.own(parameters[one]) for one in own if owners[one] == EVERYONE}
            name = f"paceline.split.state.{exchange.wire.label}.{owner}"
            found, ranges = broadcast_structure((own, ranges), root, name, process_set)
            for number, one in found.items() if keeps else ():
                if number in ranges:
                    pieces.setdefault(number, []).append((ranges[number], one))
                elif owners[number] == owner or number not in whole:
                    whole[number] = one
        whole.update({number: joined(parameters[number], many) for number, many in pieces.items()})
        self._whole, self._collected = dict(sorted(whole.items())) if keeps else None, exchange.updates

    def local_state_dict(self) -> dict[str, Any]:
        """Return the state on this rank, for one file per rank."""
        exchange = self._exchange
        process_set = exchange.wire.process_set
        share = {
            "rank": exchange.rank,
            "ranks": int(process_set.size()),
            "owners": {name: exchange.owner_of(name) for name, _ in self._names.items()},
            "places": {self._names[one]: place for one, place in self._shards.saved().items()},
        }
        owners = self._owners_by_number()
        state = self._held.state_dict()
        mine = exchange.rank, EVERYONE
        own = {number: one for number, one in state["state"].items() if owners[number] in mine}
        return {**state, "state": own if not self.partial else state["state"], SHARE: share}

    def load(self, state: dict[str, Any]) -> None:
        """Record that `state` is loaded. Raises UsageError for the local state of another rank."""
        self._whole = None
        share = state.get(SHARE)
        if share is None:
            self._exchange.loaded()
            return
        exchange = self._exchange
        mine = exchange.rank, int(exchange.wire.process_set.size())
        if (share["rank"], share["ranks"]) != mine:
            raise UsageError(
                f"The local_state_dict() of rank {share['rank']} of {share['ranks']} was loaded by rank {mine[0]} of "
                f"{mine[1]}; each rank has the state of other parameters.",
                "Let each rank load its own, or load what consolidate_state_dict() and state_dict() have collected.",
            )
        exchange.loaded()
        places = share.get("places", {})
        self._shards.load({one: places[name] for name, one in self._names.items() if name in places})
        exchange.owners = Owners.of_saved(share["ranks"], share["owners"], exchange.wire.spans(share["ranks"]))
        exchange.updates = 1

    @property
    def _shards(self) -> Shards:
        wire: Any = self._exchange.wire
        return cast(Shards, wire.of_shards)

    def _parameters(self) -> list[Tensor]:
        return [one for group in self._held.param_groups for one in group["params"]]

    def _owners_by_number(self) -> list[int]:
        self._exchange.check_state()
        return [
            EVERYONE if one in self._shards else self._exchange.owner_of(self._names[one]) for one in self._parameters()
        ]
