"""The mean of all ranks' models: periodic, where an exchange lets them diverge, or by a call of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline.codecs.choice import Choice
from paceline.codecs.encoding import Encoding
from paceline.errors import UsageError
from paceline.exchange.around_updates import EQUAL_UPDATES, AroundUpdates
from paceline.exchange.ops import Cell, Ops
from paceline.exchange.wire import Key, Weights, Wire
from paceline.native.library import loaded


class ModelAveraging(AroundUpdates):
    """Average the weights over all ranks after `sync_every` updates (0 disables it), and after a drain.

    The ranks wait for each other there, so all must make the same number of updates. Ranks already waiting here are not
    counted in the partial rounds of ranks still training. Updates of different weights that alternate, as in a GAN, are
    counted separately: each averages its own weights.
    """

    def __init__(
        self,
        sync_every: int,
        wire: Wire,
        ops: Ops,
        meet: Callable[..., None],
        members: Callable[[], set[Key]],
        word: str,
    ) -> None:
        """Construct the averaging of one optimizer.

        `meet`: Exchange.meet. `members()`: keys of the exchanged gradients. `word`: name of `sync_every` in errors.
        """
        self._every = sync_every
        self._wire = wire
        self._ops = ops
        self._meet = meet
        self._members = members
        self._meaning = f"updates since the last drain or average, which must be equally many with {word},"
        # Updates since the last average or drain, of each set of weights that is updated separately.
        self._counts: dict[frozenset[int] | None, Cell] = {}

    def update(self, weights: Weights, step: Callable[[], Any], late: Any) -> Any:
        """Call `step`, and average if that is due."""
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
        """Average if that is due after update number `count` of the set `key` of weights; also in a graph."""
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
        """Call `step`; the average follows the last update of the drain."""
        return step()

    def meet_before_drain(self) -> None:
        """Raise UserError within a minute if ranks have made different numbers of updates, instead of a deadlock."""
        if self._every and not self.leaving:
            self._meet("average", [self._since_average], self._meaning)

    def meet_before_join(self) -> None:
        """Raise UserError within a minute if ranks have made different numbers of updates.

        A rank that has joined contributes zeros: models would be averaged with them.
        """
        if self._every and not self.leaving:
            self._meet("join", [self._since_average], self._meaning, EQUAL_UPDATES)

    def drained(self, weights: Weights, updates: int) -> None:
        """Average after a drain: all ranks received all results, but averages in between divided the earlier ones."""
        if updates and self._every and not self.leaving:
            self._restart()
            self.average(weights)

    def average(self, weights: Weights) -> None:
        """Average the weights over all ranks, which must all call this; also in a graph."""
        shared = self._wire.shared(weights(), self._members())
        for index, mean in self._wire.start_means(shared)().items():
            self._wire.assign(shared[index], mean)

    def forget(self) -> None:
        """Reset all counts."""
        self._restart()


class VariableMeans:
    """Means of variables over all ranks, for Keras and TensorFlow; the ranks wait for each other.

    Also within a graph.
    """

    def __init__(self, wire: Any, settings: Any) -> None:
        """Construct means with `wire`, paceline.keras3.on_tensorflow or on_torch, and settings of its operations."""
        self._name = settings.name
        self._wire = wire
        self._reduce = wire.Reducer(settings)

    def __call__(
        self, variables: Mapping[int, Any], work: Any = None, values: Mapping[int, Any] | None = None
    ) -> dict[int, Any]:
        """Return the means of `variables`, numbered the same on all ranks, or of `values` in their place.

        `work` weights each rank's values; if all ranks have work 0, the values stay as they are. Raises UsageError for
        integer variables.
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
    """Return `average_variables` for a Horovod module and the modules `wire` and `settings` of its framework."""
    # Kept, because TensorFlow compiles the operations of each; with the process set, because ids are reused.
    known: dict[tuple[str, int], tuple[Any, VariableMeans]] = {}

    def average_variables(
        variables: Sequence[Any], name: str = "average_variables", process_set: Any = horovod.global_process_set
    ) -> None:
        """Set `variables` on all ranks to the mean of their values.

        All ranks must call it, with the same number of variables of the same shapes and dtypes in the same order;
        eagerly or within a graph.

        Args:
            variables: floating-point variables, such as `model.trainable_variables`.
            name: name of the operations. Averages that may be in flight at the same time need different names.
            process_set: ranks to average over; all ranks by default.

        Raises:
            UsageError: for integer variables; it is a ValueError.
        """
        key = (name, process_set.process_set_id)
        if key not in known or known[key][0] is not process_set:
            choices = settings.Settings(
                name=name,
                op=horovod.Average,
                average=horovod.Average,
                process_set=process_set,
                compression=horovod.Compression.none,
                encoding=Encoding(loaded(wire.LIBRARY), process_set, Choice()),
            )
            known[key] = process_set, VariableMeans(wire, choices)
        for index, mean in known[key][1](dict(enumerate(variables))).items():
            variables[index].assign(mean)

    return average_variables
