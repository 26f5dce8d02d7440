"""Settings of a wrapped Keras 3 optimizer: the arguments of Horovod's DistributedOptimizer and of Paceline."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.errors import UsageError


@dataclass(frozen=True, eq=False)
class Settings:
    """Settings of one wrapped optimizer. `op` and `process_set` belong to the Horovod module of the backend in use.

    `groups`: None, a number of groups, or lists of variables whose gradients form one message each. `exchange`: None
    for a synchronous exchange; else a function of the settings that makes Paceline's (paceline.exchange.base) for one
    optimizer. `encoding`: codec and collective (paceline.codecs.encoding); None: from the environment variables.
    `weight`: weight of this rank's gradients (paceline.keras3.weighing).
    """

    name: str
    op: Any
    average: Any  # the value that `op` has for an average
    process_set: Any
    compression: Any
    device_dense: str = ""
    device_sparse: str = ""
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    backward_passes_per_step: int = 1
    average_aggregated_gradients: bool = False
    groups: int | Sequence[Sequence[Any]] | None = None
    scale_local_gradients: bool = True
    exchange: Any = None
    encoding: Any = None
    weight: Any = None

    def __post_init__(self) -> None:
        if self.backward_passes_per_step < 1:
            raise UsageError(
                f"backward_passes_per_step={self.backward_passes_per_step} cannot be used.",
                "It counts the backward passes of one update: give a whole number of at least 1.",
            )
        if self.gradient_predivide_factor != 1.0 and self.op != self.average:
            raise UsageError(
                f"gradient_predivide_factor={self.gradient_predivide_factor} needs op=Average.",
                "Leave gradient_predivide_factor out, or use op=Average.",
            )
        if isinstance(self.groups, int) and self.groups < 1:
            raise UsageError(
                f"groups={self.groups} cannot be used.",
                "Give a whole number of at least 1, a list of lists of variables, or None.",
            )

    @property
    def sharded(self) -> bool:
        """True if ranks share the update and the optimizer's state (exchange="split")."""
        chosen = getattr(self.exchange, "chosen", None)
        return chosen is not None and chosen.sharded

    @property
    def prescale(self) -> float:
        """Factor before the sum."""
        return 1.0 / self.gradient_predivide_factor if self.op == self.average else 1.0

    @property
    def postscale(self) -> float:
        """Factor after the sum, in addition to the 1 / size of an average."""
        return self.gradient_predivide_factor if self.op == self.average else 1.0

    @property
    def compiled_with(self) -> tuple[Any, ...]:
        """Values compiled into a reduction, besides groups: settings with equal values may share it."""
        return (
            self.name, self.op, self.process_set.process_set_id, self.process_set, self.compression,
            self.device_dense, self.device_sparse, self.prescale, self.postscale,
            self.encoding and self.encoding.choice,
        )  # fmt: skip

    def operation(self, kind: str, index: int | str, mark: str = "") -> str:
        """Name of one operation, equal on all ranks, with `mark` before the index.

        It holds the optimizer's name and the variable's index in the optimizer's list, or a word. Keras' own names are
        unsuitable: they count the objects of a process, which may differ between ranks. `kind` comes first because
        Horovod's elastic mode recognises a failed operation by it.
        """
        return f"{kind}_{re.sub('[^A-Za-z0-9_]', '_', self.name)}_{mark}{index}"

    def bucket(self, indices: Sequence[int], like: Sequence[Any]) -> str:
        """Name of the operation that carries the gradients of these variables; `like` has their types."""
        mark = "" if self.encoding is None else self.encoding.choice_of(like).mark
        return self.operation("HorovodAllreduce" if len(indices) == 1 else "HorovodAllreduceGroup", indices[0], mark)


class Reduction:
    """Average (or sum, by the settings) the gradients of one optimizer over its process set.

    The `Reducer` of each backend implements the call. It takes gradients (never None), and the variables' keys and
    indices in the optimizer's list. It returns the values to update with.
    """

    def __init__(self, settings: Settings) -> None:
        self.exchange = settings.exchange(settings) if settings.exchange is not None else None
        self.overlap: Any = None  # messages that begin in the backward pass (torch_overlap), where there are such
        self._settings = settings
        # True if sparse gradients become dense.
        self.dense = settings.sparse_as_dense or self.exchange is not None

    def groups(self, keys: Sequence[Any], key_of: Any, indices: Sequence[int], grads: Sequence[Any]) -> list[list[int]]:
        """Return the positions of the gradients of each message."""
        if self.exchange is not None and self.exchange.settings.sharded:
            grouped: list[list[int]] = self.exchange.wire.groups(indices, grads)
            return grouped
        return split(self._settings.groups, keys, key_of)


def exchanged(exchange: Any, grads: Sequence[Any], buckets: Any, groups: Sequence[Sequence[int]]) -> list[Any]:
    """Results of Paceline's exchange for dense `grads`; `groups`: positions of the gradients in each of `buckets`."""
    result = list(grads)
    answers = exchange.reduce(buckets, [[grads[position] for position in group] for group in groups])
    for group, values in zip(groups, answers):
        for position, value in zip(group, values):
            result[position] = value
    return result


def split(groups: int | Sequence[Sequence[Any]] | None, keys: Sequence[Any], key_of: Any) -> list[list[int]]:
    """Positions of `keys` in each message, in order; every position occurs once.

    `key_of` maps a variable given in `groups` to its value in `keys`.
    """
    if groups is None:
        return [[position] for position in range(len(keys))]
    if isinstance(groups, int):
        count = min(groups, len(keys)) or 1
        size, extra = divmod(len(keys), count)
        starts = [number * size + min(number, extra) for number in range(count + 1)]
        return [list(range(*pair)) for pair in itertools.pairwise(starts) if pair[0] < pair[1]]
    position_of = {key: position for position, key in enumerate(keys)}
    result: list[list[int]] = []
    for group in groups:
        members = [position_of.pop(key_of(variable)) for variable in group if key_of(variable) in position_of]
        if members:
            result.append(members)
    return result + [[position] for position in sorted(position_of.values())]
