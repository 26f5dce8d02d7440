"""The mean of all ranks' models: now and then, where an exchange lets them drift apart, or as a call of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline.codecs.choice import Choice
from paceline.codecs.travel import Travel
from paceline.errors import UsageError
from paceline.exchange.around_updates import AroundUpdates
from paceline.exchange.ops import Cell, Ops
from paceline.exchange.wire import Key, Weights, Wire
from paceline.native.library import loaded


class ModelAveraging(AroundUpdates):
    """After `sync_every` updates of a rank, and after a drain, its weights become the mean of all ranks'; 0: never.

    The ranks wait for each other there, so all must make equally many updates; partial rounds of those that have not
    come yet do not wait for those that have. Updates of different weights that take turns, as those of a GAN, count
    apart: each averages its own weights.
    """

    def __init__(
        self,
        sync_every: int,
        wire: Wire,
        ops: Ops,
        meet: Callable[[str, list[int], str], None],
        members: Callable[[], set[Key]],
        word: str,
    ) -> None:
        """`meet`: Exchange.meet. `members()`: whose gradients travel. `word`: what errors call `sync_every`."""
        self._every = sync_every
        self._wire = wire
        self._ops = ops
        self._meet = meet
        self._members = members
        self._meaning = f"updates since the last drain or average, which must be equally many with {word},"
        # Updates since the last average or drain, of each set of weights that has updates of its own.
        self._counts: dict[frozenset[int] | None, Cell] = {}

    def update(self, weights: Weights, step: Callable[[], Any], late: Any) -> Any:
        """See AroundUpdates.update: and average if that is due."""
        result = step()
        if self._every:
            wire, ops, known = self._wire, self._ops, weights()
            key = wire.update_set(known)
            cell = self._count(key)
            # A step that raises before its update is not counted: the other ranks would wait.
            with ops.after([wire.value(weight) for weight in known.values()]):
                count = cell.read() + 1
                cell.assign(ops.where(count >= self._every, 0, count))
                self._updated(count, known, key)
        return result

    def _updated(self, count: Any, known: Mapping[int, Any], key: frozenset[int] | None) -> None:
        """The set `key` of weights, `known`, had its update number `count` since the last average; also in a graph."""
        self._ops.cond(count >= self._every, lambda: self.average(lambda: known), lambda: None)

    def _count(self, key: frozenset[int] | None) -> Cell:
        if key not in self._counts:
            self._counts[key] = self._ops.cell(0)
        return self._counts[key]

    @property
    def _since_average(self) -> int:
        """Updates since the last average or drain, of all sets of weights."""
        return sum(int(cell.value()) for cell in self._counts.values())

    def _restart(self) -> None:
        for cell in self._counts.values():
            cell.set(0)

    def update_of_drain(self, weights: Weights, step: Callable[[], Any]) -> Any:
        """See AroundUpdates.update_of_drain: averages come after the last of them."""
        return step()

    def meet_before_drain(self) -> None:
        """Raises UserError, within a minute, where ranks have made unequally many updates: they would wait for ever."""
        if self._every and not self.leaving:
            self._meet("average", [self._since_average], self._meaning)

    def drained(self, weights: Weights, updates: int) -> None:
        """Every rank has been given all results, but averages have divided what it had before."""
        if updates and self._every and not self.leaving:
            self._restart()
            self.average(weights)

    def average(self, weights: Weights) -> None:
        """See AroundUpdates.average: all ranks must. Also in a graph."""
        shared = self._wire.shared(weights(), self._members())
        for index, mean in self._wire.start_means(shared)().items():
            self._wire.assign(shared[index], mean)

    def forget(self) -> None:
        """See AroundUpdates.forget: all count from the beginning."""
        self._restart()


class VariableMeans:
    """The means of variables over all ranks, for Keras and TensorFlow; the ranks wait for each other.

    Also within a graph.
    """

    def __init__(self, wire: Any, settings: Any) -> None:
        """`wire`: paceline.keras3.on_tensorflow or on_torch; `settings` are those of its operations."""
        self._name = settings.name
        self._wire = wire
        self._reduce = wire.Reducer(settings)

    def __call__(
        self, variables: Mapping[int, Any], work: Any = None, values: Mapping[int, Any] | None = None
    ) -> dict[int, Any]:
        """Return the means of `variables`, numbered the same on all ranks, or of `values` in their place.

        With `work` each rank's count as much as that; without any on all ranks they are what they were. Raises
        UsageError for whole numbers.
        """
        for variable in variables.values():
            if "float" not in str(variable.dtype):
                raise UsageError(
                    f"{self._name} was given the variable {getattr(variable, 'path', variable.name)} of "
                    f"{variable.dtype}, which has no mean.",
                    "Give variables of floating point numbers, such as model.trainable_variables.",
                )
        indices = list(variables)
        held = [self._wire.value(variables[one]) if values is None else values[one] for one in indices]
        if work is None:
            return dict(zip(indices, self._reduce(held, indices, indices, None), strict=True))
        flats = self._reduce([self._wire.with_weight(one, work, True) for one in held], indices, indices, None)
        return dict(zip(indices, map(self._wire.mean_or, flats, held), strict=True))


def averager(horovod: Any, wire: Any, settings: Any) -> Callable[..., None]:
    """`average_variables` of one wire: its Horovod module, and the modules wire and settings beside it."""
    known: dict[tuple[str, int], VariableMeans] = {}  # TensorFlow compiles the operations of each

    def average_variables(
        variables: Sequence[Any], name: str = "average_variables", process_set: Any = horovod.global_process_set
    ) -> None:
        """Give all ranks the mean of their values of `variables`, such as `model.trainable_variables`.

        All ranks must call it, with as many variables of the same shapes and dtypes, floating point numbers, in the
        same order; eagerly or within a graph. `name`: of the operations; averages that may travel at the same time need
        different names. Raises UsageError, a ValueError, for variables of whole numbers.
        """
        key = (name, process_set.process_set_id)
        if key not in known:
            choices = settings.Settings(
                name=name,
                op=horovod.Average,
                average=horovod.Average,
                process_set=process_set,
                compression=horovod.Compression.none,
                travel=Travel(loaded(wire.LIBRARY), process_set, Choice()),
            )
            known[key] = VariableMeans(wire, choices)
        for index, mean in known[key](dict(enumerate(variables))).items():
            variables[index].assign(mean)

    return average_variables
