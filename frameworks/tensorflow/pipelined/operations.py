"""The pipelined exchange of TensorFlow gradients, in graphs and eagerly (see paceline.pipelined.updates_in_flight)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from paceline.native.library import loaded
from paceline.pipelined.settings import Pipelined
from paceline.pipelined.updates_in_flight import Reduce, UpdatesInFlight


class GraphPipeline(UpdatesInFlight):
    """Counts in variables, so that a compiled step goes on by itself; no Python runs in it."""

    def __init__(self, pipelined: Pipelined, settings: Any, reduce: Reduce) -> None:
        """`reduce`: the synchronous one, which is also what pipelined operations are made with."""
        super().__init__(pipelined, settings, "tensorflow", loaded("tensorflow"))
        self._reduce = reduce
        with tf.init_scope():
            self._variables = {
                "warm": tf.Variable(pipelined.warmup_steps, trainable=False),
                "skip": tf.Variable(pipelined.k - 1, trainable=False),
                "scales": tf.Variable(tf.ones(pipelined.k - 1), trainable=False),
                "answered": tf.Variable(True, trainable=False),
            }

    def reduce(
        self, grads: Sequence[Any], settings: Any, places: Sequence[int], groups: Sequence[Sequence[int]]
    ) -> list[Any]:
        """As the wire's own, with the answers that the pipeline has; zeros where it has none."""
        warm, skip = self._variables["warm"].read_value(), self._variables["skip"].read_value()
        # Horovod's library has the same count of synchronous calls, and knows which ones these are.
        results = self._reduce(grads, settings, places, groups)
        filling = tf.logical_and(warm <= 0, skip > 0)
        if self.scale is not None:
            results = self._rescaled(results, warm)
        with tf.control_dependencies(results):
            self._variables["warm"].assign(tf.maximum(warm - 1, 0))
            self._variables["skip"].assign(skip - tf.cast(filling, skip.dtype))
            self._variables["answered"].assign(tf.logical_not(filling))
        return list(results)

    def _rescaled(self, results: Sequence[Any], warm: Any) -> list[Any]:
        """Results were scaled by another factor if loss scaling has changed its own since."""
        scales = self._variables["scales"].read_value()
        now = tf.cast(tf.convert_to_tensor(self.scale), scales.dtype)
        factor = tf.where(warm > 0, tf.ones_like(now), now / scales[0])
        with tf.control_dependencies([factor]):
            self._variables["scales"].assign(tf.concat([scales[1:], [now]], 0))
        return [result * tf.cast(factor, result.dtype) for result in results]

    @property
    def answered(self) -> Any:
        """Whether the last `reduce` had answers: a boolean tensor."""
        return self._variables["answered"].read_value()

    @property
    def filled_here(self) -> Any:
        """See UpdatesInFlight.filled_here."""
        return self.pipelined.k - 1 - self._variables["skip"].read_value()

    def when_answered(self, update: Callable[[], Any], otherwise: Callable[[], Any]) -> None:
        """Call `update` if the last `reduce` had answers, else `otherwise`."""

        def run(action: Callable[[], Any]) -> Any:
            action()
            return tf.constant(0)

        tf.cond(self.answered, lambda: run(update), lambda: run(otherwise))

    def _get(self, name: str) -> Any:
        with tf.init_scope():
            return self._variables[name].numpy()

    def _set(self, name: str, value: Any) -> None:
        with tf.init_scope():
            self._variables[name].assign(value)
