"""Observation of exchanges of compiled steps: the records are written by operations in the graph.

Python sees a compiled step once, while it is traced. Each record is written by an operation that calls Python with the
values in every execution. Gradients are submitted after the operation that records them; results are passed on after
theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline.exchange.base import Exchange
from paceline.exchange.ops import GraphOps
from paceline.exchange.wire import Answer, Bucket, Weights
from paceline.history.means import Means
from paceline.history.observer import Observer
from paceline.history.records import Updated


def observe(exchange: Exchange) -> Observer:
    """Write the records of an exchange from now on."""
    return Observer(exchange) if exchange.wire.graph_ops is None else GraphObserver(exchange)


class GraphObserver(Observer):
    """Writes the records of one exchange whose steps may be compiled."""

    def _means_of(self, exchange: Exchange) -> Means:
        return GraphMeans(exchange)

    @property
    def _ops(self) -> GraphOps:
        ops = self._wire.graph_ops
        assert ops is not None
        return ops

    def _start(self, inner: Callable[..., Answer], bucket: Bucket, tensors: Sequence[Any]) -> Answer:
        ops, dtypes = self._ops, [self._wire.like(tensor)[1] for tensor in tensors]
        with ops.after(ops.observed(lambda arrays: self._submit(bucket, arrays, dtypes), tensors)):
            answer = inner(bucket, [self._wire.copy(tensor) for tensor in tensors])

        def received() -> list[Any] | None:
            results = answer()
            if results is None:
                return None
            with ops.after(ops.observed(lambda arrays: self._receive(bucket, arrays), results)):
                return [self._wire.copy(result) for result in results]

        return received

    def _complete(self, inner: Callable[[], Any]) -> Any:
        answered = inner()
        self._ops.observed(lambda arrays: self._end_step(bool(arrays[0])), [answered])
        return answered

    def _update(self, inner: Callable[..., Any], weights: Weights, step: Callable[[], Any], *otherwise: Any) -> Any:
        sent = self._shares is not None  # after the step, owners send the new weights

        def counted() -> Any:
            result = step()
            if not sent:
                self._observe(weights, self._updated)
            return result

        result = inner(weights, counted, *otherwise)
        if sent:
            self._observe(weights, self._updated)
        if not self._equal:
            self._observe(weights, self._averaged)
        return result

    def _observe(self, weights: Weights, write: Callable[[Mapping[int, Any]], None]) -> None:
        """Call `write` with the values that the weights have here, in every execution."""
        known = weights()
        values = [self._wire.value(one) for one in known.values()]
        with self._ops.after(values):
            self._ops.observed(lambda arrays: write(dict(zip(known, arrays, strict=True))), values)

    def _updated(self, values: Mapping[int, Any]) -> None:
        self._write(Updated(self._x, self._last))
        if self._equal:
            self._weigh_values(values)

    def _averaged(self, values: Mapping[int, Any]) -> None:
        if averaged := self._means.take_equal():
            self._weigh_values({i: values[i] for i in averaged if i in values}, average=self._means.number)


class GraphMeans(Means):
    """Writes averages of compiled steps."""

    def _start(
        self,
        inner: Callable[..., Callable[[], dict[int, Any]]],
        weights: Mapping[int, Any],
        values: Mapping[int, Any] | None = None,
        work: Any = None,
        encoded: bool = False,
        kind: str = "",
    ) -> Callable[[], dict[int, Any]]:
        ops: GraphOps = self._wire.graph_ops
        if not ops.tracing:
            return super()._start(inner, weights, values, work, encoded, kind)
        held = {index: self._wire.value(one) if values is None else values[index] for index, one in weights.items()}
        dtypes = [self._wire.like(one)[1] for one in held.values()]
        numbers: list[int] = []

        def submit(arrays: list[Any]) -> None:
            share = arrays.pop() if work is not None else None
            numbers[:] = [self._submit(dict(zip(held, arrays, strict=True)), dtypes, share, encoded, kind)]

        def receive(arrays: list[Any]) -> None:
            self._receive(dict(zip(indices, arrays, strict=True)), numbers[0], kind)

        with ops.after(ops.observed(submit, [*held.values(), *([] if work is None else [work])])):
            found = inner(weights, values, work, encoded, kind)()
        indices = list(found)
        with ops.after(ops.observed(receive, list(found.values()))):
            passed = {index: self._wire.copy(one) for index, one in found.items()}
        return lambda: passed
