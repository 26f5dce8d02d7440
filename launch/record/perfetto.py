"""A recording as a Chrome trace: a timeline of all ranks for https://ui.perfetto.dev and chrome://tracing."""

from __future__ import annotations

import gzip
import heapq
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from paceline.errors import UserError
from paceline.launch.record import horovods_timeline
from paceline.record.alignment import shifts_s
from paceline.record.timed import timed_steps
from paceline.record.trace import RankTrace, Step, Trace

Event = dict[str, Any]

# Names of colours that chrome://tracing knows. Perfetto colours by name.
KIND_COLOURS = {"allreduce": "thread_state_iowait", "broadcast": "good", "allgather": "rail_response"}
OTHER_COLOUR = "generic_work"
EXPOSED_COLOUR = "terrible"
# Tracks of a rank; further lanes of messages come behind the first.
STEPS, EXPOSED, MESSAGES = 1, 2, 3


class Slice(NamedTuple):
    """An interval on a track, in seconds on the rank's clock."""

    start_s: float
    end_s: float
    name: str
    category: str
    args: dict[str, Any]
    colour: str | None = None


class Clock(NamedTuple):
    """The time of one rank that is zero in the timeline."""

    origin_s: float

    def us(self, time_s: float) -> float:
        """Return microseconds in the timeline, to the nanosecond."""
        return round(1e6 * (time_s - self.origin_s), 3)


def document(trace: Trace, horovods: list[Event] | None = None) -> dict[str, Any]:
    """Return the trace in the Chrome trace-event format, as a JSON object.

    Each rank has two processes: one with its steps, exposed communication, messages and counters, and one with a track
    for each gradient. Zero is the first arrival of the earliest rank; the clocks of ranks are aligned on the ends of
    their collectives. `horovods`, the events of Horovod's timeline, become one more process, with a track for each
    tensor. Raises UserError if no step was recorded, or if that timeline is of another run.
    """
    ranks = [one for one in trace.ranks if one.steps]
    if not ranks:
        raise UserError(
            "The trace has no step for a timeline.",
            "A step begins when a tensor name repeats: record a script of several steps.",
        )
    shifts = shifts_s([one.steps for one in ranks])
    earliest_s = min(one.steps[0].start_s - shift for one, shift in zip(ranks, shifts, strict=True))
    events: list[Event] = []
    for one, shift in zip(ranks, shifts, strict=True):
        clock = Clock(earliest_s + shift)
        # Perfetto takes number 0 for the idle process.
        events += _rank(one, clock, pid=1 + one.rank)
        events += _gradients(one, clock, pid=1 + trace.size + one.rank)
    if horovods is not None:
        events += _horovods(ranks[0], Clock(earliest_s + shifts[0]), pid=1 + 2 * trace.size, events=horovods)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"paceline": ranks[0].paceline, "horovod": ranks[0].horovod, "ranks": trace.size},
    }


def save(trace: Trace, path: Path, horovods: list[Event] | None = None) -> None:
    """Write the timeline, compressed if the name ends with .gz. Raises UserError if that cannot be done."""
    content = msgspec.json.encode(document(trace, horovods))
    try:
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    except OSError as error:
        raise UserError(
            f"The timeline {path} cannot be written: {error.strerror}.", "Name a file in a folder you may write to."
        ) from None


def _rank(one: RankTrace, clock: Clock, pid: int) -> Iterator[Event]:
    yield from _process(pid, f"rank {one.rank} on {one.host}", one.rank)
    timed = {each.step.index: each for each in timed_steps(one)}
    steps, exposed = [], []
    for step, following in zip(one.steps, [*one.steps[1:], None], strict=True):
        end_s = max(
            [step.start_s, *(each.time_s for each in step.arrivals), *(each.end_s for each in step.collectives)]
        )
        found = timed.get(step.index)
        if found is not None:
            end_s = step.start_s + 1e-3 * found.time_ms
        elif following is not None:
            end_s = min(end_s, following.start_s)
        steps.append(Slice(step.start_s, end_s, f"step {step.index}", "step", _step_args(step)))
        if found is not None:
            yield _counter(pid, clock.us(step.start_s), "exposed communication (ms)", round(found.waiting_ms, 6))
        if found is not None and found.waiting_ms:
            last_s = max((each.time_s for each in step.arrivals), default=step.start_s)
            args = {"step": step.index, "ms": round(found.waiting_ms, 6)}
            wait = Slice(last_s, last_s + 1e-3 * found.waiting_ms, "exposed", "exposed", args, EXPOSED_COLOUR)
            exposed.append(wait)
    yield from _track(pid, STEPS, "steps", steps, clock)
    yield from _track(pid, EXPOSED, "exposed communication", exposed, clock)
    for lane, slices in enumerate(_lanes(_messages(one))):
        yield from _track(pid, MESSAGES + lane, f"messages {lane + 1}" if lane else "messages", slices, clock)
    yield from _counters(one, clock, pid)


def _step_args(step: Step) -> dict[str, Any]:
    return {
        "tensors": len(step.arrivals),
        "messages": len(step.collectives),
        "bytes": sum(each.size_bytes for each in step.collectives),
        "coordination rounds": step.coordination_rounds,
    }


def _messages(one: RankTrace) -> Iterator[Slice]:
    for step in one.steps:
        for each in step.collectives:
            args = {
                "step": step.index,
                "kind": each.kind,
                "bytes": each.size_bytes,
                "tensors": [one.tensors[tensor].name for tensor in each.tensors],
                "coordination rounds of the step": step.coordination_rounds,
            }
            colour = KIND_COLOURS.get(each.kind, OTHER_COLOUR)
            yield Slice(each.start_s, each.end_s, each.kind, each.kind, args, colour)


def _waits(one: RankTrace) -> Iterator[tuple[int, Slice]]:
    """Return the tensor and the time from its submission to the end of its message, of every message."""
    for step in one.steps:
        done_s = {tensor: each.end_s for each in step.collectives for tensor in each.tensors}
        for arrival in step.arrivals:
            if arrival.tensor in done_s:
                tensor = one.tensors[arrival.tensor]
                args = {"step": step.index, "bytes": tensor.size_bytes, "dtype": tensor.dtype}
                end_s = max(arrival.time_s, done_s[arrival.tensor])
                yield arrival.tensor, Slice(arrival.time_s, end_s, tensor.name, "gradient", args)


def _gradients(one: RankTrace, clock: Clock, pid: int) -> Iterator[Event]:
    """Return a track for each tensor, in the order of the first submissions; another where its messages overlap."""
    yield from _process(pid, f"rank {one.rank}: gradients", pid)
    waits: dict[int, list[Slice]] = {}
    for tensor, wait in _waits(one):
        waits.setdefault(tensor, []).append(wait)
    tid = 0
    for tensor, slices in waits.items():
        for lane in _lanes(slices):
            tid += 1
            yield from _track(pid, tid, one.tensors[tensor].name, lane, clock)


def _horovods(one: RankTrace, clock: Clock, pid: int, events: list[Event]) -> Iterator[Event]:
    if one.rank != 0:
        raise UserError("The trace has no rank 0, which wrote Horovod's timeline.", "Leave the timeline out.")
    later_s = horovods_timeline.offset_s(events, one)
    yield from _process(pid, "Horovod's timeline (rank 0)", pid)
    for tid, (name, phases) in enumerate(horovods_timeline.tracks(events), 1):
        slices = [
            Slice(each.start_s + later_s, each.end_s + later_s, each.name, "horovod", {"tensor": name})
            for each in phases
        ]
        yield from _track(pid, tid, name, slices, clock)


def _counters(one: RankTrace, clock: Clock, pid: int) -> Iterator[Event]:
    flying = [(each.start_s, each.end_s, each.size_bytes) for step in one.steps for each in step.collectives]
    waiting = [(wait.start_s, wait.end_s, 1) for _, wait in _waits(one)]
    for name, intervals in (("bytes in flight", flying), ("tensors waiting", waiting)):
        changes: dict[float, int] = {}
        for start_s, end_s, amount in intervals:
            changes[start_s] = changes.get(start_s, 0) + amount
            changes[end_s] = changes.get(end_s, 0) - amount
        value = 0
        for time_s in sorted(changes):
            value += changes[time_s]
            yield _counter(pid, clock.us(time_s), name, value)


def _lanes(slices: Iterable[Slice]) -> list[list[Slice]]:
    """Split slices into the fewest lists without overlaps, each in order of time."""
    lanes: list[list[Slice]] = []
    free: list[tuple[float, int]] = []  # when each lane ends
    for one in sorted(slices, key=lambda each: (each.start_s, each.end_s)):
        if free and free[0][0] <= one.start_s:
            _, lane = heapq.heappop(free)
        else:
            lane = len(lanes)
            lanes.append([])
        lanes[lane].append(one)
        heapq.heappush(free, (one.end_s, lane))
    return lanes


def _track(pid: int, tid: int, name: str, slices: Sequence[Slice], clock: Clock) -> Iterator[Event]:
    yield from (
        {"ph": "M", "pid": pid, "tid": tid, "ts": 0, "name": kind, "args": {key: value}}
        for kind, key, value in (("thread_name", "name", name), ("thread_sort_index", "sort_index", tid))
    )
    for one in slices:
        # From both ends: sums of rounded numbers would let neighbours overlap.
        start_us = clock.us(one.start_s)
        event = {"ph": "X", "pid": pid, "tid": tid, "ts": start_us, "dur": round(clock.us(one.end_s) - start_us, 3)}
        event |= {"name": one.name, "cat": one.category, "args": one.args}
        yield event if one.colour is None else {**event, "cname": one.colour}


def _process(pid: int, name: str, sort_index: int) -> Iterator[Event]:
    for kind, key, value in (("process_name", "name", name), ("process_sort_index", "sort_index", sort_index)):
        yield {"ph": "M", "pid": pid, "tid": 0, "ts": 0, "name": kind, "args": {key: value}}


def _counter(pid: int, us: float, name: str, value: float) -> Event:
    return {"ph": "C", "pid": pid, "tid": 0, "ts": us, "name": name, "args": {"value": value}}
