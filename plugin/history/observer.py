"""Observation of one exchange: records of everything that its optimizer or tape submits and receives.

The observer replaces methods of the one exchange object, and of its wire, by functions that write a record and call the
method. Without PACELINE_HISTORY nothing is replaced. It observes from outside: a result is recorded as the optimizer
receives it, whatever the exchange, the library and the network did with it.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from paceline.exchange.base import Exchange, Update
from paceline.exchange.wire import Answer, Bucket, Key, Weights
from paceline.history import writer
from paceline.history.headers import header
from paceline.history.means import Means
from paceline.history.methods import weakly
from paceline.history.records import Applied, Drained, Loaded, Lost, Produced, Step, Updated
from paceline.history.records import Weights as WeightsRecord
from paceline.history.rounds import Rounds
from paceline.history.shards import Shares
from paceline.history.sums import Sums, array_of, hash_of, sums_of
from paceline.history.writer import History, number_of_world
from paceline.native.world import process, world


class Observers(weakref.WeakSet["Observer"]):
    """Observers of a library."""


class Observer:
    """Writes the records of one exchange whose updates Python sees; graphs.py has the others."""

    def __init__(self, exchange: Exchange) -> None:
        # Not the exchange itself: it keeps the observer.
        self._exchange: Any = weakref.proxy(exchange)
        self._wire = exchange.wire
        self._library = exchange.wire.library
        self._world: object = None
        self._ending = threading.Lock()  # operations of a graph run in several threads
        self._means = self._means_of(exchange)
        self._begin()
        for name in ("start", "complete", "update", "drain", "drained", "discard", "forget", "load"):
            setattr(exchange, name, partial(getattr(self, f"_{name}"), weakly(exchange, name)))
        process(self._library).of(Observers).add(self)

    def _means_of(self, exchange: Exchange) -> Means:
        return Means(exchange)

    def _begin(self) -> None:
        """Write the header of a new world, if it is one."""
        if self._world is world(self._library):
            return
        self._world = world(self._library)
        self._step = 1
        self._begun = False  # True if gradients of the step were submitted
        # By tensor: the last step that submitted it; steps whose results this step and the one before have received.
        self._submitted: dict[str, int] = {}
        self._received: dict[str, int] = {}
        self._before: dict[str, int] = {}
        self._in_flight: dict[str, deque[int]] = {}  # steps whose results were not received, by tensor
        self._history = process(self._library).of(History)
        self._made = header(self._exchange, number_of_world(self._library))
        self._x = self._made.x
        self._rounds = Rounds(self._exchange, self._x) if self._made.exchange == "partial" else None
        self._shares = Shares(self._exchange) if self._made.exchange == "split" else None
        self._means.begin(self._x, self._history.write)
        self._equal = not (self._exchange.models_differ or getattr(self._exchange.settings, "compensates", False))
        self._unwritten: dict[int, weakref.ref[Any]] = {}  # weights that are in flight after an update
        self._history.write(self._made)

    # --- gradients ------------------------------------------------------------------------------------------------

    def _start(self, inner: Callable[..., Answer], bucket: Bucket, tensors: Sequence[Any]) -> Answer:
        self._submit(bucket, tensors, [self._wire.like(tensor)[1] for tensor in tensors])
        answer = inner(bucket, tensors)

        def received() -> list[Any] | None:
            results = answer()
            if results is not None:
                self._receive(bucket, results)
            return results

        return received

    def _submit(self, bucket: Bucket, tensors: Sequence[Any], dtypes: Sequence[str]) -> None:
        """Write what is submitted; `dtypes`: NumPy's names of the tensors' types."""
        self._begin()
        self._write_weights()
        self._begun = True
        for key, tensor, dtype in zip(bucket.members, tensors, dtypes, strict=True):
            found, name = array_of(tensor), str(key)
            weight = float(found.reshape(-1)[-1]) if self._exchange.weighted and found.size else None
            self._write(Produced(self._x, self._step, name, dtype, sums_of(found), weight))
            self._in_flight.setdefault(name, deque()).append(self._step)
            self._submitted[name] = self._step
        if self._rounds is not None:
            self._rounds.meet(bucket)

    def _receive(self, bucket: Bucket, results: Sequence[Any]) -> None:
        """Write what is received."""
        step = self._step
        shares = None if self._shares is None else self._shares.of(bucket, results)
        for number, (key, result) in enumerate(zip(bucket.members, results, strict=True)):
            name = str(key)
            queue = self._in_flight[name]
            if self._rounds is not None:
                queue.clear()
                if applied := self._rounds.answered(name, step, sums_of(array_of(result))):
                    self._write(applied)
            elif shares is not None:
                queue.clear()
                self._received[name] = step
                owner, (begin, end) = shares.owner, shares.ranges[number]
                part = array_of(result).reshape(-1)[begin:end]
                self._write(Applied(self._x, step, name, sums_of(part, begin), of=step, owner=owner, before=begin))
            elif not self._exchange.lag:
                queue.clear()
                self._received[name] = step
                self._write(Applied(self._x, step, name, sums_of(array_of(result)), of=step))
            elif len(queue) > self._exchange.lag:
                self._received[name] = of = queue.popleft()
                self._write(Applied(self._x, step, name, sums_of(array_of(result)), of=of))

    def _complete(self, inner: Callable[[], Any]) -> Any:
        answered = inner()
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
        with self._ending:
            self._step += 1
            self._begun = False
        self._before, self._received = self._received, {}

    @property
    def _last(self) -> int:
        """The step of the last results. In a graph its update may be recorded before its end."""
        with self._ending:
            return self._step - (not self._begun)

    # --- updates --------------------------------------------------------------------------------------------------

    def _update(self, inner: Callable[..., Any], weights: Weights, step: Callable[[], Any], *otherwise: Any) -> Any:
        made = []

        def counted() -> Any:
            made.append(True)
            return step()

        self._means.take_equal()
        result = inner(weights, counted, *otherwise)
        if made:
            self._write(Updated(self._x, self._last))
            self._hold_weights(weights)
        self._history.flush()
        return result

    def _hold_weights(self, weights: Weights) -> None:
        if self._equal:
            self._unwritten = {index: weakref.ref(one) for index, one in weights().items()}
            if self._shares is None:
                self._write_weights()
        elif averaged := self._means.take_equal():
            known = weights()
            self._weigh({index: known[index] for index in averaged if index in known}, average=self._means.number)

    def _write_weights(self) -> None:
        """Write the hashes of weights after the last update; those of the split exchange arrive later."""
        if not self._unwritten:
            return
        unwritten, self._unwritten = self._unwritten, {}
        if self._shares is not None:
            self._wire.land()  # type: ignore[attr-defined]
        self._weigh({index: weight for index, one in unwritten.items() if (weight := one()) is not None})

    def _weigh(self, weights: Mapping[int, Any], drain: bool = False, average: int = 0) -> None:
        self._weigh_values({index: self._wire.value(one) for index, one in weights.items()}, drain, average)

    def _weigh_values(self, values: Mapping[int, Any], drain: bool = False, average: int = 0) -> None:
        hashes = {index: hash_of(array_of(one)) for index, one in values.items()}
        self._write(WeightsRecord(self._x, self._last, hashes, drain, average))

    # --- what is in flight ----------------------------------------------------------------------------------------

    def _drain(self, inner: Callable[[], list[Update]]) -> list[Update]:
        self._begin()
        updates = inner()
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
        self._write(Drained(self._x, self._last, len(updates), rounds))
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
        elif self._begun:
            # Before `complete`: the gradients of this step are lost, the results that it received are in flight again.
            for name, queue in self._in_flight.items():
                if self._submitted.get(name) == self._step:
                    if queue and queue[-1] == self._step:
                        queue.pop()
                    if self._received.get(name, self._step) != self._step:
                        queue.appendleft(self._received[name])
                    self._write(Lost(self._x, self._step, name, (self._step,), "discard"))
        else:
            for name, of in self._before.items():
                self._write(Lost(self._x, self._last, name, (of,), "discard"))
        if self._begun:
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
                if self._rounds is None:
                    self._lose(name, "forget")
                else:  # late ones, if there are any
                    self._write(Lost(self._x, self._step, name, (), "forget"))
            self._begun, self._unwritten = False, {}

    def close(self, failed: bool) -> None:
        """Write what is left at the end of the world. Never raises: weights of a lost rank do not arrive."""
        if self._world is world(self._library) and not failed:
            with suppress(RuntimeError):
                self._write_weights()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _write(self, record: Any) -> None:
        self._history.write(record)


def end(library: ctypes.CDLL, failed: bool) -> None:
    """End the history of a world."""
    for one in list(process(library).of(Observers)):
        one.close(failed)
    writer.end(library, failed)
