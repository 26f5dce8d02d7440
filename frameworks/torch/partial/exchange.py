"""The partial exchange of PyTorch gradients: rounds that do not wait for late ranks (see paceline.partial.settings)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.exchange.channel_owners import ChannelOwner
from paceline.partial.settings import Partial
from paceline.partial.state import PARTIAL_K, PartialBuffers, SavedRounds
from paceline.pipelined.settings import described
from paceline.torch.errors import UsageError
from paceline.torch.optimizer.sync import Finish, SyncExchange, full_names


class PartialExchange:
    """Hands gradients in for the next round of their name; the answers are what this rank has not had yet.

    The first round of a name waits for all ranks. `drain` brings out what is in send buffers: the last update.
    """

    def __init__(self, sync: SyncExchange, settings: Partial, buffers: PartialBuffers) -> None:
        self.settings = settings
        self.immediate = False
        self.filled = 0
        self._sync = sync
        self._buffers = buffers
        self._ranks = int(sync.process_set.size())
        self._units: dict[str, list[Tensor]] = {}  # what travels under a name: tensors without memory
        # Rounds go on under a name whoever makes the calls; so only `drain` leaves it to another optimizer.
        self._owner = ChannelOwner(buffers.meeting, settings.registration(self._ranks), lambda name, limit_s: True)

    def start(self, name: str, gradients: Sequence[Tensor]) -> Finish:
        """See Exchange.start."""
        if gradients[0].is_sparse:
            raise UsageError(
                f"The gradient of {name!r} is sparse; a partial exchange adds late gradients up.",
                "Give DistributedOptimizer sparse_as_dense=True.",
            )
        self._own(name, [torch.empty_like(gradient, device="meta") for gradient in gradients])
        return self._sync.start(name, gradients)

    def _own(self, name: str, likes: list[Tensor]) -> None:
        if name not in self._units:
            self._owner.claim(self._full_names(name, len(likes)), name)
        self._units[name] = likes

    def _full_names(self, name: str, count: int) -> list[str]:
        return full_names(self._sync.scope + name, count)

    def complete(self) -> bool:
        """See Exchange.complete."""
        return True

    def discard(self, answers: dict[str, list[Tensor]]) -> bool:
        """See Exchange.discard. Late gradients of earlier updates go as well: they were added up with this one's.

        A rank that had been given their results keeps them, one that had not will never have them.
        """
        self.drain()
        return True

    def rescaled(self, scale: float, answered: bool) -> float:
        """Refuses a GradScaler: gradients that come late were scaled by what it was then."""
        raise UsageError(
            "A GradScaler was used with an exchange that does not wait for late gradients.",
            'Use bfloat16 without a GradScaler, or exchange="sync".',
        )

    def drain(self) -> list[tuple[dict[str, list[Tensor]], float]]:
        """One update: all that was contributed and that this rank has not been answered with. Waits for all ranks."""
        if not self._units:
            return []
        for name, likes in self._units.items():
            for full in self._full_names(name, len(likes)):
                self._buffers.meeting.flush_next(full)
        # All of them before waiting for one.
        flushes = {
            name: self._sync.start(name, [torch.zeros(like.shape, dtype=like.dtype) for like in likes])
            for name, likes in self._units.items()
        }
        drained = [({name: finish() for name, finish in flushes.items()}, 1.0)]
        self.forget()
        return drained

    def state(self) -> dict[str, Any] | None:
        """This rank's send buffers, and the results it has not been given; None after `drain`. Asks no other rank.

        To go on from, every rank saves its own where all have made the same calls, between two barriers.
        """
        if not self._units:
            return None
        results = {
            name: [self._buffers.save(full).plain() for full in self._full_names(name, len(likes))]
            for name, likes in self._units.items()
        }
        rank = int(self._sync.process_set.rank())
        return {"k": PARTIAL_K, "rank": rank, "ranks": self._ranks, "in_flight": [(results, 1.0)]}

    def check(self, state: dict[str, Any]) -> None:
        """See Exchange.check."""
        if state["in_flight"] and state["k"] != PARTIAL_K:
            raise ValueError(f"expected no gradients in flight, found {described(state['k'])}")

    def load(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken; all ranks must, each with its own.

        Raises UserError if the states of the ranks do not fit together or are not their own.
        """
        if not state["in_flight"]:
            return
        ((units, _),) = state["in_flight"]
        saved = {name: [SavedRounds.of(one) for one in many] for name, many in units.items()}
        for name, many in saved.items():
            self._owner.claim(self._full_names(name, len(many)), name)
        states = {
            full: one
            for name, many in saved.items()
            for full, one in zip(self._full_names(name, len(many)), many, strict=True)
        }
        here = int(self._sync.process_set.rank())
        self._buffers.restore(states, (state["rank"], state["ranks"]) != (here, self._ranks))
        for name, many in saved.items():
            self._units[name] = [torch.empty_like(torch.from_numpy(one.send), device="meta") for one in many]

    def forget(self) -> None:
        """See Exchange.forget."""
        self._owner.release()
        self._units.clear()
