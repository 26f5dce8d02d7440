"""Observation of one exchange: records of everything that its optimizer or tape submits and receives.

The observer replaces methods of the one exchange object, and of its wire, by functions that write a record and call the
method. Without PACELINE_HISTORY nothing is replaced. It observes from outside: a result is recorded as the optimizer
receives it, whatever the exchange, the library and the network did with it.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from paceline.exchange.base import Exchange, Update
from paceline.exchange.wire import Answer, Bucket, Key, Weights
from paceline.history import writer
from paceline.history.headers import header
from paceline.history.means import Means
from paceline.history.records import Applied, Drained, Loaded, Lost, Produced, Step, Updated
from paceline.history.records import Weights as WeightsRecord
from paceline.history.rounds import Rounds
from paceline.history.shards import Shares
from paceline.history.sums import Sums, array_of, sums_of
from paceline.history.writer import History, number_of_world
from paceline.native.world import process, world


class Observers(weakref.WeakSet["Observer"]):
    """Observers of a library."""


class Observer:
    """Writes the records of one exchange."""

    def __init__(self, exchange: Exchange) -> None:
        # Not the exchange itself: it keeps the observer.
        self._exchange: Any = weakref.proxy(exchange)
        self._wire = exchange.wire
        self._library = exchange.wire.library
        self._world: object = None
        self._means = Means(exchange)
        self._begin()
        for name in ("start", "complete", "update", "drain", "drained", "discard", "forget", "load"):
            setattr(exchange, name, partial(getattr(self, f"_{name}"), getattr(exchange, name)))
        process(self._library).of(Observers).add(self)

    def _begin(self) -> None:
        """Write the header of a new world, if it is one."""
        if self._world is world(self._library):
            return
        self._world = world(self._library)
        self._step = 1
        self._begun = False  # True if gradients of the step were submitted
        self._received: dict[str, int] = {}  # steps whose results this step has received, by tensor
        self._in_flight: dict[str, deque[int]] = {}  # steps whose results were not received, by tensor
        self._history = process(self._library).of(History)
        self._made = header(self._exchange, number_of_world(self._library))
        self._x = self._made.x
        self._rounds = Rounds(self._exchange, self._x) if self._made.exchange == "partial" else None
        self._shares = Shares(self._exchange) if self._made.exchange == "split" else None
        self._means.begin(self._x, self._history.write)
        self._equal = not (self._exchange.models_differ or getattr(self._exchange.settings, "compensates", False))
        self._unwritten: tuple[int, Weights] | None = None  # weights that are in flight after an update
        self._history.write(self._made)

    # --- gradients ------------------------------------------------------------------------------------------------

    def _start(self, inner: Callable[..., Answer], bucket: Bucket, tensors: Sequence[Any]) -> Answer:
        self._begin()
        if self._traced:
            return inner(bucket, tensors)
        self._write_weights()
        step, self._begun = self._step, True
        for key, tensor in zip(bucket.members, tensors, strict=True):
            found, name = array_of(tensor), str(key)
            weight = float(found.reshape(-1)[-1]) if self._exchange.weighted and found.size else None
            self._write(Produced(self._x, step, name, self._wire.like(tensor)[1], sums_of(found), weight))
            self._in_flight.setdefault(name, deque()).append(step)
        if self._rounds is not None:
            self._rounds.meet(bucket)
        answer = inner(bucket, tensors)

        def received() -> list[Any] | None:
            results = answer()
            if results is not None:
                self._receive(bucket, step, results)
            return results

        return received

    def _receive(self, bucket: Bucket, step: int, results: Sequence[Any]) -> None:
        shares = None if self._shares is None else self._shares.of(bucket, results)
        for number, (key, result) in enumerate(zip(bucket.members, results, strict=True)):
            name = str(key)
            queue = self._in_flight[name]
            if self._rounds is not None:
                queue.clear()
                self._write(self._rounds.answered(name, step, sums_of(array_of(result))))
            elif shares is not None:
                queue.clear()
                owner, (begin, end) = shares.owner, shares.ranges[number]
                part = array_of(result).reshape(-1)[begin:end]
                self._write(Applied(self._x, step, name, sums_of(part, begin), of=step, owner=owner, before=begin))
            elif not self._exchange.lag:
                queue.clear()
                self._write(Applied(self._x, step, name, sums_of(array_of(result)), of=step))
            elif len(queue) > self._exchange.lag:
                self._received[name] = of = queue.popleft()
                self._write(Applied(self._x, step, name, sums_of(array_of(result)), of=of))

    def _complete(self, inner: Callable[[], Any]) -> Any:
        answered = inner()
        if not self._traced:
            self._leave_out_frozen()
            self._end_step(bool(answered))
        return answered

    def _leave_out_frozen(self) -> None:
        """Record the gradients in flight that an update without their parameter drops (PipelinedExchange._level)."""
        if not self._exchange.lag:
            return
        for name, queue in self._in_flight.items():
            if queue and queue[-1] != self._step and self._begun:
                self._lose(name, "frozen")

    def _lose(self, name: str, reason: str) -> None:
        steps = tuple(self._in_flight[name])
        self._in_flight[name].clear()
        if steps:
            self._write(Lost(self._x, self._step, name, steps, reason))

    def _end_step(self, answered: bool) -> None:
        self._write(Step(self._x, self._step, answered))
        self._history.flush()
        self._step += 1
        self._begun = False
        self._received.clear()

    # --- updates --------------------------------------------------------------------------------------------------

    def _update(self, inner: Callable[..., Any], weights: Weights, step: Callable[[], Any], *otherwise: Any) -> Any:
        if self._traced:
            return inner(weights, step, *otherwise)
        made = []

        def counted() -> Any:
            made.append(True)
            return step()

        self._means.take_equal()
        result = inner(weights, counted, *otherwise)
        if made:
            self._write(Updated(self._x, self._step - 1))
            self._hold_weights(weights)
        self._history.flush()
        return result

    def _hold_weights(self, weights: Weights) -> None:
        if self._equal:
            self._unwritten = self._step - 1, weights
            if self._shares is None:
                self._write_weights()
        elif averaged := self._means.take_equal():
            known = weights()
            self._weigh({index: known[index] for index in averaged if index in known}, average=self._means.number)

    def _write_weights(self) -> None:
        """Write the hashes of weights after the last update; those of the split exchange arrive later."""
        if self._unwritten is None:
            return
        (_, weights), self._unwritten = self._unwritten, None
        if self._shares is not None:
            self._wire.land()  # type: ignore[attr-defined]
        self._weigh(weights())

    def _weigh(self, weights: Mapping[int, Any], drain: bool = False, average: int = 0) -> None:
        hashes = {index: sums_of(array_of(self._wire.value(one))).hash for index, one in weights.items()}
        self._write(WeightsRecord(self._x, self._step - 1, hashes, drain, average))

    # --- what is in flight ----------------------------------------------------------------------------------------

    def _drain(self, inner: Callable[[], list[Update]]) -> list[Update]:
        self._begin()
        updates = inner()
        if self._traced:
            return updates
        self._write_weights()
        if self._rounds is not None:
            results: dict[str, Sums] = {}
            for values, _ in updates:
                results.update((str(key), sums_of(array_of(one))) for key, one in values.items())
            for one in self._rounds.drained(self._step, results):
                self._write(one)
            for queue in self._in_flight.values():
                queue.clear()
        else:
            for values, _ in updates:
                self._receive_drained(values)
        rounds = {} if self._rounds is None else self._rounds.performed()
        self._write(Drained(self._x, self._step - 1, len(updates), rounds))
        self._history.flush()
        return updates

    def _receive_drained(self, values: Mapping[Key, Any]) -> None:
        for key, value in values.items():
            queue = self._in_flight.get(str(key))
            of = queue.popleft() if queue else 0
            array = value["values"] if isinstance(value, dict) else array_of(value)
            self._write(Applied(self._x, self._step, str(key), sums_of(array), of=of, drain=True))

    def _drained(self, inner: Callable[[Weights, int], None], weights: Weights, updates: int) -> None:
        inner(weights, updates)
        known = weights()
        if self._equal and updates and self._shares is None:
            self._weigh(known, drain=True)
        elif averaged := self._means.take_equal():
            self._weigh({i: known[i] for i in averaged if i in known}, drain=True, average=self._means.number)
        self._history.flush()

    def _discard(self, inner: Callable[[Any], bool], answers: Any) -> bool:
        parted = inner(answers)
        if self._rounds is not None:
            for one in self._rounds.discarded(self._step):
                self._write(one)
        # Before `complete`: these results do not count, and those that they replaced are in flight again.
        self._write(Lost(self._x, self._step - (not self._begun), "", (), "discard"))
        if self._begun:
            for name, queue in self._in_flight.items():
                if queue and queue[-1] == self._step:
                    queue.pop()
                if name in self._received:
                    queue.appendleft(self._received[name])
            self._end_step(False)
        return parted

    def _forget(self, inner: Callable[[], None]) -> None:
        inner()
        self._lose_all()

    def _load(self, inner: Callable[..., None], state: dict[str, Any], *rest: Any) -> None:
        self._begin()
        inner(state, *rest)
        self._write(Loaded(self._x, self._step))
        if self._rounds is not None:
            self._rounds.forget()
        # Steps of an earlier world are numbered backwards from 0.
        count = len(state.get("in_flight", ()))
        for age, (values, _) in enumerate(state.get("in_flight", ())):
            for key in values if self._rounds is None else ():
                self._in_flight.setdefault(str(key), deque()).append(age - count)

    def _lose_all(self) -> None:
        if self._world is world(self._library):
            for name in self._in_flight:
                self._lose(name, "forget")
            self._begun, self._unwritten = False, None

    def end(self) -> None:
        """Write what is left at the end of the world."""
        if self._world is world(self._library):
            self._write_weights()

    # --- inside ---------------------------------------------------------------------------------------------------

    @property
    def _traced(self) -> bool:
        return self._exchange.sets is not None and self._exchange.sets.tracing

    def _write(self, record: Any) -> None:
        self._history.write(record)


def begin(library: ctypes.CDLL, folder: Path) -> None:
    """Begin the history of a world. Waits for all ranks."""
    writer.begin(library, folder)


def end(library: ctypes.CDLL, failed: bool) -> None:
    """End the history of a world."""
    for one in list(process(library).of(Observers)):
        one.end()
    writer.end(library, failed)
