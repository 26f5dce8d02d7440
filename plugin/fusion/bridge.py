"""What Horovod's library knows about merging, and what can be asked of it (bridge/fusion/api.cc)."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from paceline.fusion.armed import ArmedReport, armed

# A readiness at or above this says that the tensor is missing in some steps on some rank (merger.h: kIrregular).
IRREGULAR_S = 1e8
# The layout of a measurement (merger.h, monitor.h).
_MEASURE_HEADER = 3
_SWEEP_KINDS = 3
_MOST_SWEEPS = 64
_MOST_MESSAGES = 256
_MOST_SETS = 1024


class ControlOp(IntEnum):
    """Kinds of control operations (bridge/fusion/control_op.h)."""

    SETTINGS = 0
    MEASURE = 1
    SWEEP = 2
    PLAN = 3
    FAST_SWEEP = 4
    BURST = 5


class _What(IntEnum):
    STATUS = 0
    AGREEMENT = 1
    PLAN = 2
    MEASUREMENT = 3
    OWN = 4


@dataclass(frozen=True)
class Status:
    """Where merging stands in one process set, as this rank sees it.

    `serial` tells process sets that have the same id, one after the other, apart. `armed`: all ranks want armed steps,
    and this set is one that can have them.
    """

    rank: int
    size: int
    agreed: bool
    plans: bool
    steps: int
    version: int
    expired: int
    threshold_bytes: int
    cycle_s: float
    serial: int
    armed: bool = False


@dataclass(frozen=True)
class Own:
    """Medians over the last steps of this rank; negative where nothing is known yet."""

    steps: int
    step_s: float
    exposed_s: float
    coordination_s: float


@dataclass(frozen=True)
class Tensor:
    """A tensor that is reduced; only tensors of equal `type` can share a message."""

    name: str
    bytes: int
    type: int


@dataclass(frozen=True)
class Measurement:
    """What the ranks measured together.

    `compute_s` is the part of a step that no merging can hide (maximum over ranks). `ready_s`, per tensor, is counted
    from the step's first tensor (maximum over ranks); None where the tensor is missing in some steps. `samples` are
    (bytes, seconds) of messages, each the minimum over ranks: the rank that came last did not wait for others. The
    medians are over at least `steps` steps of every rank; a rank that has just begun to count anew has none. `sweeps`
    are those of the samples that were alone on their way; `fast_sweeps` went by the collective of armed steps, those
    of `burst` as well and together, timed from the beginning of the first one.
    """

    number: int
    tensors: list[Tensor]
    ready_s: list[float | None]
    compute_s: float
    coordination_s: float
    samples: list[tuple[float, float]]
    steps: int
    sweeps: list[tuple[float, float]] = field(default_factory=list)
    fast_sweeps: list[tuple[float, float]] = field(default_factory=list)
    burst: list[tuple[float, float]] = field(default_factory=list)


@dataclass(frozen=True)
class PlanState:
    """The plan that all ranks follow: `group_of` per tensor, negative where it is not planned, and in `parts_of` how
    many parts it goes in where steps are armed.
    """

    version: int
    active: bool
    expected: list[float]
    group_of: list[int]
    parts_of: list[int]
    tensors: list[Tensor]


class Bridge:
    """The merging part of one of Horovod's shared libraries."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self._lock = threading.Lock()  # the library keeps one picture at a time

    def want(self, policy: int) -> None:
        """Ask for the policy with this digest on this rank; 0 for Horovod's own merging."""
        self.library.horovod_paceline_fusion_want(float(policy))

    def process_sets(self) -> list[int]:
        """The ids of the process sets that this rank is in."""
        ids = (ctypes.c_int32 * _MOST_SETS)()
        count = self.library.horovod_paceline_fusion_sets(ids, _MOST_SETS)
        return list(ids[: min(count, _MOST_SETS)])

    def ask(self, process_set: int, kind: ControlOp, values: Sequence[float] = ()) -> int:
        """Ask for a control operation of the process set; returns its number, negative if there is no such set."""
        array = (ctypes.c_double * max(len(values), 1))(*values)
        return int(self.library.horovod_paceline_fusion_ask(process_set, kind, array, len(values)))

    def status(self, process_set: int) -> Status | None:
        """Where merging stands, or None if there is no such process set (any more)."""
        taken = self._take(process_set, _What.STATUS)
        if taken is None:
            return None
        rank, size, agreed, plans, steps, version, expired, threshold_bytes, cycle_s, serial, armed = taken[0]
        return Status(
            int(rank), int(size), bool(agreed), bool(plans), int(steps), int(version), int(expired),
            int(threshold_bytes), cycle_s, int(serial), bool(armed),
        )  # fmt: skip

    def agreement(self, process_set: int) -> list[int | None]:
        """The digest of the policy that each rank asked for, None where it has not been heard."""
        taken = self._take(process_set, _What.AGREEMENT)
        return [int(value) - 1 if value else None for value in taken[0][1:]] if taken else []

    def own(self, process_set: int) -> Own:
        """This rank's medians."""
        taken = self._take(process_set, _What.OWN)
        return _own(iter(taken[0])) if taken else Own(0, -1, -1, -1)

    def plan(self, process_set: int) -> PlanState | None:
        """The plan that is followed, and the tensors known so far."""
        taken = self._take(process_set, _What.PLAN)
        if taken is None:
            return None
        values, names = iter(taken[0]), taken[1]
        version, active = int(next(values)), bool(next(values))
        expected = _vector(values)
        group_of, parts_of = ([int(value) for value in _vector(values)] for _ in range(2))
        return PlanState(version, active, expected, group_of, parts_of, _tensors(values, names))

    def measurement(self, process_set: int, number: int) -> Measurement | str | None:
        """The answer to the operation MEASURE with this number: None while it is under way, text if it failed."""
        taken = self._take(process_set, _What.MEASUREMENT)
        if taken is None or int(taken[0][0]) < number:
            return None
        values, names = iter(taken[0]), taken[1]
        found, fine = int(next(values)), bool(next(values))
        if not fine:
            return "the ranks could not measure together"
        combined = _vector(values)
        tensors = _tensors(values, names)
        *sweeps, messages = (_vector(values) for _ in range(_SWEEP_KINDS + 1))
        # A tensor that came after the question was put has no place in the answer.
        places = len(combined) - _MEASURE_HEADER - _SWEEP_KINDS * _MOST_SWEEPS - _MOST_MESSAGES
        ready = combined[_MEASURE_HEADER : _MEASURE_HEADER + places]
        rates = combined[_MEASURE_HEADER + places :]
        swept, fast, burst = (_samples(one, rates[n * _MOST_SWEEPS :]) for n, one in enumerate(sweeps))
        return Measurement(
            found,
            tensors[:places],
            [None if at >= IRREGULAR_S else at for at in ready],
            combined[1],
            1 / combined[2] if combined[2] else 0.0,
            swept + _samples(messages, rates[_SWEEP_KINDS * _MOST_SWEEPS :]),
            round(1 / combined[0]) if combined[0] else 0,  # all ranks have joined
            swept,
            fast,
            burst,
        )

    def armed(self) -> ArmedReport:
        """How armed steps do, in the process set of all ranks."""
        return armed(self.library)

    def _take(self, process_set: int, what: _What) -> tuple[list[float], list[str]] | None:
        names_bytes = ctypes.c_int64()
        with self._lock:
            count = self.library.horovod_paceline_fusion_take(process_set, what, ctypes.byref(names_bytes))
            if count < 0:
                return None
            values = self.library.horovod_paceline_fusion_values()[:count]
            names = ctypes.string_at(self.library.horovod_paceline_fusion_names(), names_bytes.value)
        return values, names.decode().split("\0")[:-1]


def _samples(sizes_bytes: list[float], rates: list[float]) -> list[tuple[float, float]]:
    """Bytes and seconds, where a rate, the inverse of seconds, is known."""
    return [(size_bytes, 1 / rate) for size_bytes, rate in zip(sizes_bytes, rates, strict=False) if rate > 0]


def _vector(values: Iterator[float]) -> list[float]:
    return [next(values) for _ in range(int(next(values)))]


def _tensors(values: Iterator[float], names: list[str]) -> list[Tensor]:
    count = int(next(values))
    return [Tensor(name, int(next(values)), int(next(values))) for name in names[:count]]


def _own(values: Iterator[float]) -> Own:
    steps, step_s, exposed_s, coordination_s = (next(values) for _ in range(4))
    return Own(int(steps), step_s, exposed_s, coordination_s)
