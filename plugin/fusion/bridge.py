"""State of merging in Horovod's library, and control operations on it (bridge/fusion/api.cc)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from paceline.fusion.armed import ArmedReport, armed
from paceline.native.library import read

_MOST_SETS = 1024


class ControlOp(IntEnum):
    """Kinds of control operations (bridge/fusion/control_op.h)."""

    SETTINGS = 0
    MEASURE = 1
    SWEEP = 2
    PLAN = 3
    FAST_SWEEP = 4
    BURST = 5


@dataclass(frozen=True)
class Status:
    """State of merging in one process set on this rank.

    `serial` distinguishes process sets that have had the same id. `armed`: all ranks want armed steps, and this set
    supports them.
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
    """Medians over the last steps of this rank; negative if unknown yet."""

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
    """Result of a measurement by all ranks.

    Attributes:
        number: number of the control operation.
        tensors: the reduced tensors.
        ready_s: by tensor, the time since the step's first tensor (maximum over ranks); None if some steps lack the
            tensor.
        compute_s: part of a step that no merging can hide (maximum over ranks).
        coordination_s: time of one coordination round.
        samples: (bytes, seconds) of messages, each the minimum over ranks, because the last rank does not wait for
            others.
        steps: the medians are over at least this many steps of every rank; 0 if a rank has just restarted its count.
        sweeps: those of the samples that were alone in flight.
        fast_sweeps: messages by the collective of armed steps.
        burst: as `fast_sweeps`, but sent together, timed from the beginning of the first one.
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
    """The plan that all ranks follow.

    `group_of`: group of each tensor, negative if it is not planned; `parts_of`: number of its parts in armed steps.
    """

    version: int
    active: bool
    expected: list[float]
    group_of: list[int]
    parts_of: list[int]
    tensors: list[Tensor]


class Bridge:
    """Interface to merging in one of Horovod's shared libraries."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library

    def want_armed(self, armed: bool) -> None:
        """Set whether this process wants armed steps: steps that are alike are negotiated once."""
        self.library.horovod_paceline_fusion_want_armed(int(armed))

    def want(self, policy: int) -> None:
        """Select the policy with this digest on this rank; 0 selects Horovod's own merging."""
        self.library.horovod_paceline_fusion_want(float(policy))

    def process_sets(self) -> list[int]:
        """Return the ids of the process sets that this rank is in."""
        ids = (ctypes.c_int32 * _MOST_SETS)()
        count = self.library.horovod_paceline_fusion_sets(ids, _MOST_SETS)
        return list(ids[: min(count, _MOST_SETS)])

    def ask(self, process_set: int, kind: ControlOp, values: Sequence[float] = ()) -> int:
        """Request a control operation of the process set; return its number, negative if there is no such set."""
        array = (ctypes.c_double * max(len(values), 1))(*values)
        return int(self.library.horovod_paceline_fusion_ask(process_set, kind, array, len(values)))

    def status(self, process_set: int) -> Status | None:
        """Return the state of merging, or None if there is no such process set (any more)."""
        found = read(self.library, "fusion_status", process_set)
        return None if found is None else Status(**found)

    def agreement(self, process_set: int) -> list[int | None]:
        """Return the digest of each rank's policy; None for ranks that have not reported one."""
        found = read(self.library, "fusion_agreement", process_set)
        return [] if found is None else [None if one is None else int(one) for one in found["asked"]]

    def own(self, process_set: int) -> Own:
        """Return this rank's medians."""
        found = read(self.library, "fusion_own", process_set)
        return Own(0, -1, -1, -1) if found is None else Own(**found)

    def plan(self, process_set: int) -> PlanState | None:
        """Return the active plan, and the tensors known so far."""
        found = read(self.library, "fusion_plan", process_set)
        return None if found is None else PlanState(**{**found, "tensors": _tensors(found["tensors"])})

    def measurement(self, process_set: int, number: int) -> Measurement | str | None:
        """Return the result of the MEASURE operation with this number.

        None while it is in progress; a text with the reason if it failed.
        """
        found = read(self.library, "fusion_measurement", process_set)
        if found is None or found["number"] < number:
            return None
        if found["failed"]:
            return "the ranks could not measure together"
        samples = {
            name: [(size_bytes, seconds) for size_bytes, seconds in found[name]]
            for name in ("sweeps", "fast_sweeps", "burst", "messages")
        }
        return Measurement(
            found["number"],
            _tensors(found["tensors"]),
            found["ready_s"],
            found["compute_s"],
            found["coordination_s"],
            samples["sweeps"] + samples.pop("messages"),
            found["steps"],
            **samples,
        )

    def armed(self) -> ArmedReport:
        """Return the state of armed steps in the process set of all ranks."""
        return armed(self.library)


def _tensors(pairs: list[tuple[str, tuple[int, int]]]) -> list[Tensor]:
    return [Tensor(name, *rest) for name, rest in pairs]
