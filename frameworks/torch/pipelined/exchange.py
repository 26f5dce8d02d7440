"""The pipelined exchange of PyTorch gradients: results of K - 1 updates ago (see paceline.pipelined.settings)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.exchange.channel_owners import ChannelOwner
from paceline.native.exchanges import PIPELINED
from paceline.pipelined.settings import InFlight, Pipelined, described
from paceline.torch.optimizer.sync import Answer, Finish, SyncExchange, full_names
from paceline.torch.state.saved import from_plain

# One update in flight: the results of every unit by its name.
Results = dict[str, list[Tensor]]


class PipelinedExchange:
    """Hands gradients in now and answers with those of K - 1 updates ago; every update must hand in all of them.

    The first `warmup_steps` updates are synchronous. The K - 1 after that have no answers: `complete` says so, and what
    `start` gave them are zeros. Sparse gradients, which Horovod gathers, wait here; dense ones in Horovod's library.
    """

    def __init__(self, sync: SyncExchange, settings: Pipelined, in_flight: InFlight) -> None:
        self.settings = settings
        self.immediate = False
        self._sync = sync
        self._in_flight = in_flight
        self._updates = 0  # since the beginning; synchronous ones among them
        self._filled = 0  # updates in flight, K - 1 at most
        self._held: dict[str, int] = {}  # how many of them a unit has: fewer where it came, or was unfrozen, later
        self._started: dict[str, bool] = {}  # the units of the update that is being made, and which are answered
        self._drains = 0
        self._units: dict[str, int] = {}  # how many tensors travel under a name
        self._owner = ChannelOwner(in_flight, (PIPELINED, settings.k, 0))
        self._sparse: dict[str, deque[Finish]] = {}
        self._scales: deque[float] = deque()  # of a GradScaler, for the updates in flight

    @property
    def filled(self) -> int:
        """How many updates are in flight."""
        return self._filled

    def start(self, name: str, gradients: Sequence[Tensor]) -> Answer:
        """See Exchange.start."""
        if self._updates < self.settings.warmup_steps:
            return self._sync.start(name, gradients)
        held = self._held.get(name, 0)
        answered = self._started[name] = held == self.settings.k - 1
        self._held[name] = held + (not answered)
        if gradients[0].is_sparse:
            finish = self._start_sparse(name, gradients[0])
        else:
            self._own(name, len(gradients))
            finish = self._sync.start(name, gradients)

        # Instead of zeros, which would move momentum. A whole update without answers is left out by the caller.
        def results() -> list[Tensor] | None:
            found = finish()
            return found if answered or not any(self._started.values()) else None

        return results

    def _own(self, name: str, count: int) -> None:
        new = name not in self._units
        self._units[name] = count
        if new:
            self._owner.claim(self._channels(name), name)

    def _start_sparse(self, name: str, gradient: Tensor) -> Finish:
        queue = self._sparse.setdefault(name, deque())
        # Two of one name may be on their way at once.
        queue.append(self._sync.start(f"{name}.{self._updates % self.settings.k}", [gradient]))
        if len(queue) < self.settings.k:
            return lambda: [torch.zeros_like(gradient)]
        return queue.popleft()

    def complete(self) -> bool:
        """See Exchange.complete."""
        self._updates += 1
        if self._updates <= self.settings.warmup_steps:
            return True
        # A frozen parameter must not get its gradient from before when it is unfrozen.
        for name in [name for name in self._held if name not in self._started]:
            self._drop(name)
        answered = any(self._started.values())
        self._filled = max(self._held.values(), default=0)
        self._started.clear()
        return answered

    def discard(self, answers: dict[str, list[Tensor]]) -> bool:
        """See Exchange.discard. Takes the newest gradients out of what is in flight, and puts the answers back."""
        for name, answered in self._started.items():
            if name in self._sparse:
                queue = self._sparse[name]
                queue.pop()()
                if answered:
                    queue.appendleft(_settled(answers[name]))
            else:
                kept = self._taken(name)[:-1]
                if answered:
                    kept.insert(0, [self._sync.compression.compress(tensor)[0] for tensor in answers[name]])
                for full in self._channels(name):
                    self._clear(full)
                for tensors in kept:
                    self._put(name, [tensor.cpu().numpy() for tensor in tensors])
            self._held[name] -= not answered
        self._started.clear()
        return False

    def rescaled(self, scale: float, answered: bool) -> float:
        """By what to multiply the answers so that they are scaled by `scale`, the GradScaler's of this update."""
        if self.settings.warmup_steps and self._updates <= self.settings.warmup_steps:
            return 1.0
        self._scales.append(scale)
        factor = scale / self._scales.popleft() if answered and len(self._scales) > self._filled else 1.0
        while len(self._scales) > self._filled:
            self._scales.popleft()
        return factor

    def drain(self) -> list[tuple[Results, float]]:
        """Wait for all updates in flight and take them out, oldest first, each with its GradScaler's scale (or 1).

        All ranks must do so after the same update. Raises UserError if they do not within a minute, RuntimeError with
        the reason if the wait for results fails.
        """
        name = min([*self._units, *self._sparse], default="")
        self._in_flight.meet(
            f"paceline.drain.{self._sync.scope}{name}",
            [self._drains, self._filled],
            "drains before and updates in flight",
        )
        self._drains += 1
        drained = self._all_taken()
        self.forget()
        return drained

    def state(self) -> dict[str, Any] | None:
        """What a run that goes on from here needs; waits for what travels, changes nothing, asks no other rank."""
        begun = self._filled or (self._updates and self.settings.warmup_steps)
        if not begun and not self.settings.helps:
            return None
        warm = max(self.settings.warmup_steps - self._updates, 0)
        return {"k": self.settings.k, "warm": warm, "in_flight": self._all_taken()}

    def _all_taken(self) -> list[tuple[Results, float]]:
        updates: list[tuple[Results, float]] = [({}, scale) for scale in self._scales_or_ones()]
        for name in self._units:
            for age, tensors in enumerate(self._taken(name), self._filled - self._held[name]):
                updates[age][0][name] = tensors
        for name, queue in self._sparse.items():
            settled = [finish() for finish in queue]
            self._sparse[name] = deque(_settled(tensors) for tensors in settled)
            for age, tensors in enumerate(settled, self._filled - len(settled)):
                updates[age][0][name] = tensors
        return updates

    def check(self, state: dict[str, Any]) -> None:
        """Raises ValueError for a state that another K made."""
        if state["k"] != self.settings.k:
            raise ValueError(f"expected gradients in flight of k={self.settings.k}, found {described(state['k'])}")

    def load(self, state: dict[str, Any]) -> None:
        """See Exchange.load."""
        self.forget()
        self._updates = self.settings.warmup_steps - state["warm"]
        for results, scale in state["in_flight"]:
            for name, arrays in results.items():
                if isinstance(arrays[0], dict):
                    self._sparse.setdefault(name, deque()).append(_settled([from_plain(arrays[0])]))
                else:
                    self._own(name, len(arrays))
                    self._put(name, arrays)
                self._held[name] = self._held.get(name, 0) + 1
            self._filled += 1
            self._scales.append(scale)

    def forget(self) -> None:
        """Drop what is in flight: the ranks failed or changed, or it has been taken."""
        self._owner.release()
        self._units.clear()
        self._sparse.clear()
        self._held.clear()
        self._started.clear()
        self._scales.clear()
        self._filled = 0

    def _drop(self, name: str) -> None:
        """Nothing of this unit is in flight any more."""
        del self._held[name]
        for finish in self._sparse.pop(name, ()):
            finish()
        if name in self._units:
            for full in self._channels(name):
                self._clear(full)
            del self._units[name]

    def _channels(self, name: str) -> list[str]:
        return full_names(self._sync.scope + name, self._units[name])

    def _clear(self, full: str) -> None:
        self._in_flight.settle(full)
        self._in_flight.clear(full)

    def _scales_or_ones(self) -> list[float]:
        return list(self._scales) if len(self._scales) == self._filled else [1.0] * self._filled

    def _taken(self, name: str) -> list[list[Tensor]]:
        """Per update in flight the results of a unit, as they travelled, decompressed."""
        names = self._channels(name)
        for full in names:
            self._in_flight.settle(full)
        ages = range(self._held[name])
        return [[torch.from_numpy(self._in_flight.array(full, age)) for full in names] for age in ages]

    def _put(self, name: str, arrays: Sequence[Any]) -> None:
        for full, array in zip(self._channels(name), arrays, strict=True):
            self._in_flight.put_array(full, array)


def _settled(tensors: list[Tensor]) -> Finish:
    return lambda: list(tensors)
