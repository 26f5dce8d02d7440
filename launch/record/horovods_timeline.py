"""Horovod's timeline (HOROVOD_TIMELINE, --timeline-filename) on the clock of a recording.

Horovod writes the phases of every tensor on rank 0, in microseconds from a start that no other clock knows. The
recording has the ends of the same messages, so the two clocks are aligned on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from paceline.errors import UserError
from paceline.record.trace import RankTrace

Event = dict[str, Any]
# A shorter common part of two clocks would fit in several places.
FEWEST = 3
# Ends of one message differ less between the two; those of another run differ more.
MOST_SPREAD_S = 0.02
# Name of a phase by the kind of a recorded message.
PHASES = {"allreduce": "ALLREDUCE", "broadcast": "BROADCAST", "allgather": "ALLGATHER"}


class Phase(NamedTuple):
    """A phase of one tensor, in seconds on the timeline's clock."""

    start_s: float
    end_s: float
    name: str


def load(path: Path) -> list[Event]:
    """Read a timeline, also one of a run that ended early. Raises UserError."""
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise UserError(
            f"Horovod's timeline {path} cannot be read: {error.strerror}.",
            "Name the file of HOROVOD_TIMELINE or --timeline-filename.",
        ) from None
    whole = text.rstrip().rstrip(",").removesuffix("]")
    for candidate in (whole, whole[: whole.rfind("}, {") + 1], whole[: whole.rfind("},{") + 1]):
        try:
            found = msgspec.json.decode(candidate + "]", type=list[Event])
        except msgspec.DecodeError:
            continue
        if any("ts" in one for one in found):
            return found
    raise UserError(
        f"{path} is not a timeline of Horovod.",
        "Record with `paceline record --perfetto FILE --timeline-filename FILE`. `--num-proc 1` writes an empty one.",
    )


def offset_s(events: list[Event], rank: RankTrace) -> float:
    """Return seconds to add to times of the timeline, for the clock of `rank`. Raises UserError if nothing matches."""
    ended = _ends_s(events)
    found: list[tuple[float, float]] = []
    for name, recorded_s in _recorded_ends_s(rank).items():
        timeline_s = ended.get(name, np.empty(0))
        common = min(len(timeline_s), len(recorded_s))
        if common < FEWEST:
            continue
        # Either may have begun or ended earlier: the place where the distances between ends fit best.
        short, long = sorted((timeline_s, recorded_s), key=len)
        places = np.lib.stride_tricks.sliding_window_view(long, common) - short
        shifts = np.median(places, axis=1)
        # Of four ends one may be late, because a busy machine stopped the thread between the two looks at the clock.
        near = np.sort(np.abs(places - shifts[:, None]), axis=1)[:, : -(-3 * common // 4)]
        spread = near.mean(axis=1)
        best = int(spread.argmin())
        found.append((float(spread[best]), float(shifts[best] if long is recorded_s else -shifts[best])))
    if not found or min(found)[0] > MOST_SPREAD_S:
        raise UserError(
            "Horovod's timeline and the trace have no message in common.",
            f"Both must be of one run, in which a tensor was reduced in {FEWEST} recorded steps or more.",
        )
    return min(found)[1]


def tracks(events: list[Event]) -> Iterator[tuple[str, list[Phase]]]:
    """Yield each tensor's name and its ended phases; a phase may contain others. The outer ones come first."""
    of = {one["pid"]: one["args"]["name"] for one in events if "name" in one.get("args", {})}
    opened: dict[int, list[Event]] = {}
    phases: dict[int, list[Phase]] = {}
    for one in events:
        if one.get("pid") not in of or "ts" not in one:
            continue
        number, time_s = one["pid"], 1e-6 * one["ts"]
        if one["ph"] == "B":
            opened.setdefault(number, []).append(one)
        elif one["ph"] == "X":  # during negotiation: this rank has submitted the tensor
            phases.setdefault(number, []).append(Phase(time_s, time_s, f"rank {one['name']}"))
        elif one["ph"] == "E" and opened.get(number):
            begin = opened[number].pop()
            phases.setdefault(number, []).append(Phase(1e-6 * begin["ts"], time_s, begin["name"]))
    for number, found in phases.items():
        yield of[number], sorted(found, key=lambda one: (one.start_s, -one.end_s))


def _ends_s(events: list[Event]) -> dict[str, np.ndarray]:
    """Return the ends of the messages of each tensor, in seconds."""
    messages = set(PHASES.values())
    return {name: np.array([one.end_s for one in found if one.name in messages]) for name, found in tracks(events)}


def _recorded_ends_s(rank: RankTrace) -> Mapping[str, np.ndarray]:
    ends: dict[str, list[float]] = {}
    for step in rank.steps:
        for one in step.collectives:
            for tensor in one.tensors if one.kind in PHASES else ():
                ends.setdefault(rank.tensors[tensor].name, []).append(one.end_s)
    return {name: np.array(found) for name, found in ends.items()}
