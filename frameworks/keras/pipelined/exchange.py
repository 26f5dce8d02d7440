"""The pipelined exchange of Keras gradients on PyTorch (see paceline.pipelined.updates_in_flight)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paceline.native.library import loaded
from paceline.pipelined.settings import Pipelined
from paceline.pipelined.updates_in_flight import Reduce, UpdatesInFlight


class EagerPipeline(UpdatesInFlight):
    """For Keras on PyTorch, which executes eagerly."""

    def __init__(self, pipelined: Pipelined, settings: Any, reduce: Reduce) -> None:
        """`reduce`: the synchronous one, which is also what pipelined operations are made with."""
        super().__init__(pipelined, settings, "torch", loaded("torch"))
        self._reduce = reduce
        self._answered = True
        self._numbers: dict[str, Any] = {
            "warm": pipelined.warmup_steps,
            "skip": pipelined.k - 1,
            "scales": [1.0] * (pipelined.k - 1),
        }

    def reduce(
        self, grads: Sequence[Any], settings: Any, places: Sequence[int], groups: Sequence[Sequence[int]]
    ) -> list[Any]:
        """As the wire's own, with the answers that the pipeline has; zeros where it has none."""
        warm, skip = self._numbers["warm"], self._numbers["skip"]
        # Horovod's library has the same count of synchronous calls, and knows which ones these are.
        results = self._reduce(grads, settings, places, groups)
        filling = warm == 0 and skip > 0
        if self.scale is not None:
            now = float(self.scale)
            oldest, *others = self._numbers["scales"]
            self._numbers["scales"] = [*others, now]
            if not warm and now != oldest:
                results = [result * (now / oldest) for result in results]
        self._numbers.update(warm=max(warm - 1, 0), skip=skip - filling)
        self._answered = not filling
        return results

    def when_answered(self, update: Callable[[], Any], otherwise: Callable[[], Any]) -> None:
        """Call `update` if the last `reduce` had answers, else `otherwise`."""
        (update if self._answered else otherwise)()

    def _get(self, name: str) -> Any:
        return self._numbers[name]

    def _set(self, name: str, value: Any) -> None:
        self._numbers[name] = value
