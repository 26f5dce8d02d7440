"""The trace of a run: what `paceline record` writes, as typed values, with loading, checking and merging.

A file holds either one rank's trace or the merged trace of all ranks. Times are seconds since that rank's recording
began, on its own steady clock; clocks of different ranks are not comparable. docs/trace.md describes the format.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from paceline.errors import UserError

FORMAT = "paceline-trace"
VERSION = 1

T = TypeVar("T")


@dataclass(frozen=True)
class Tensor:
    """A tensor that took part: its name as Horovod saw it, its size, its data type's name, its process set."""

    name: str
    size_bytes: int
    dtype: str
    process_set: int


@dataclass(frozen=True)
class Arrival:
    """The moment at which this rank handed the tensor with this id (its index in the list of tensors) to Horovod."""

    tensor: int
    time_s: float


@dataclass(frozen=True)
class Collective:
    """One message: the kind of operation, the ids of the tensors merged into it, its payload and its duration."""

    kind: str
    tensors: tuple[int, ...]
    size_bytes: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Step:
    """One training step of one rank; `start_s` is the time of its first arrival."""

    index: int
    start_s: float
    arrivals: tuple[Arrival, ...]
    collectives: tuple[Collective, ...]
    coordination_rounds: int


@dataclass(frozen=True)
class Totals:
    """Sums over the steps that were kept."""

    steps: int
    coordination_rounds: int
    messages: int
    size_bytes: int


@dataclass(frozen=True)
class RankTrace:
    """What one rank saw."""

    rank: int
    size: int
    host: str
    library: str
    horovod: str
    paceline: str
    tensors: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    totals: Totals


@dataclass(frozen=True)
class Trace:
    """What all ranks of a world of `size` saw; `ranks` are in order of rank, and may lack some."""

    size: int
    ranks: tuple[RankTrace, ...]

    @property
    def missing(self) -> list[int]:
        """The ranks of which there is no trace."""
        return sorted(set(range(self.size)) - {trace.rank for trace in self.ranks})


# Reading. Every reader gets the place ("steps[3].start_s") for the message if something is wrong there.


class _Wrong(Exception):
    """The place in the file and what is wrong with it."""


def _field(value: Any, place: str, name: str) -> tuple[Any, str]:
    here = f"{place}.{name}".lstrip(".")
    if not isinstance(value, dict):
        raise _Wrong(f"{place or 'the file'} must be an object, not {_shown(value)}")
    if name not in value:
        raise _Wrong(f"{here} is missing")
    return value[name], here


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _text(value: Any, place: str, name: str) -> str:
    found, here = _field(value, place, name)
    if not isinstance(found, str):
        raise _Wrong(f"{here} must be text, not {_shown(found)}")
    return found


def _count(value: Any, place: str, name: str) -> int:
    found, here = _field(value, place, name)
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise _Wrong(f"{here} must be a whole number of at least 0, not {_shown(found)}")
    return found


def _seconds(found: Any, here: str) -> float:
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not math.isfinite(found):
        raise _Wrong(f"{here} must be a time in seconds, not {_shown(found)}")
    return float(found)


def _each(value: Any, place: str, name: str, read: Callable[[Any, str], T]) -> tuple[T, ...]:
    found, here = _field(value, place, name)
    if not isinstance(found, list):
        raise _Wrong(f"{here} must be a list, not {_shown(found)}")
    return tuple(read(item, f"{here}[{number}]") for number, item in enumerate(found))


def _tensor(value: Any, place: str) -> Tensor:
    return Tensor(
        _text(value, place, "name"),
        _count(value, place, "bytes"),
        _text(value, place, "dtype"),
        _count(value, place, "process_set"),
    )


def _tensor_id(value: Any, place: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _Wrong(f"{place} must be the number of a tensor, not {_shown(value)}")
    return value


def _arrival(value: Any, place: str) -> Arrival:
    if not isinstance(value, list) or len(value) != 2:
        raise _Wrong(f"{place} must be [tensor, time], not {_shown(value)}")
    return Arrival(_tensor_id(value[0], f"{place}[0]"), _seconds(value[1], f"{place}[1]"))


def _collective(value: Any, place: str) -> Collective:
    start_s, end_s = (_seconds(*_field(value, place, name)) for name in ("start_s", "end_s"))
    if end_s < start_s:
        raise _Wrong(f"{place} ends before it starts ({end_s} s < {start_s} s)")
    return Collective(
        _text(value, place, "kind"),
        _each(value, place, "tensors", _tensor_id),
        _count(value, place, "bytes"),
        start_s,
        end_s,
    )


def _step(value: Any, place: str) -> Step:
    return Step(
        _count(value, place, "index"),
        _seconds(*_field(value, place, "start_s")),
        _each(value, place, "arrivals", _arrival),
        _each(value, place, "collectives", _collective),
        _count(value, place, "coordination_rounds"),
    )


def _totals(value: Any, place: str) -> Totals:
    return Totals(*(_count(value, place, name) for name in ("steps", "coordination_rounds", "messages", "bytes")))


def _rank_trace(value: Any, place: str) -> RankTrace:
    trace = RankTrace(
        _count(value, place, "rank"),
        _count(value, place, "size"),
        _text(value, place, "host"),
        _text(value, place, "library"),
        _text(value, place, "horovod"),
        _text(value, place, "paceline"),
        _each(value, place, "tensors", _tensor),
        _each(value, place, "steps", _step),
        _totals(*_field(value, place, "totals")),
    )
    where = f"{place}: " if place else ""
    if trace.rank >= trace.size:
        raise _Wrong(f"{where}rank {trace.rank} cannot be in a world of {trace.size}")
    for before, after in zip(trace.steps, trace.steps[1:], strict=False):
        if after.index <= before.index or after.start_s < before.start_s:
            raise _Wrong(f"{where}step {after.index} follows step {before.index} but does not come after it")
    for step in trace.steps:
        used = [arrival.tensor for arrival in step.arrivals]
        used += [tensor for collective in step.collectives for tensor in collective.tensors]
        if used and max(used) >= len(trace.tensors):
            raise _Wrong(f"{where}step {step.index} names tensor {max(used)} of {len(trace.tensors)}")
    return trace


def _check_header(value: Any) -> None:
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise _Wrong("it is not a Paceline trace")
    if value.get("version") != VERSION:
        raise _Wrong(f"its format has version {_shown(value.get('version'))}, this Paceline reads version {VERSION}")


def from_json(value: Any) -> Trace:
    """A trace from decoded JSON, of one rank or of all. Raises ValueError that names the place and what is wrong."""
    try:
        _check_header(value)
        if "ranks" not in value:
            one = _rank_trace(value, "")
            return Trace(one.size, (one,))
        trace = Trace(_count(value, "", "size"), _each(value, "", "ranks", _rank_trace))
        _check_ranks(trace)
        return trace
    except _Wrong as wrong:
        raise ValueError(str(wrong)) from None


def _check_ranks(trace: Trace) -> None:
    found = [one.rank for one in trace.ranks]
    if found != sorted(set(found)):
        raise _Wrong(f"its ranks {found} must differ and be in order")
    for one in trace.ranks:
        if one.size != trace.size:
            raise _Wrong(f"rank {one.rank} saw a world of {one.size}, the trace says {trace.size}")


def load(path: Path) -> Trace:
    """The trace in `path`, of one rank or of all. Raises UserError naming the file and what is wrong with it."""
    remedy = "Record it again with `paceline record`, or name the file that it wrote."
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UserError(f"The trace {path} cannot be read: {reason}.", remedy) from None
    try:
        return from_json(json.loads(text))
    except json.JSONDecodeError as error:
        raise UserError(
            f"The trace {path} cannot be used: it is cut short or not JSON "
            f"(line {error.lineno}, column {error.colno}: {error.msg}).",
            remedy,
        ) from None
    except ValueError as error:
        raise UserError(f"The trace {path} cannot be used: {error}.", remedy) from None


# Writing and merging.


def rank_to_json(trace: RankTrace) -> dict[str, Any]:
    """One rank's trace as JSON values."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "rank": trace.rank,
        "size": trace.size,
        "host": trace.host,
        "library": trace.library,
        "horovod": trace.horovod,
        "paceline": trace.paceline,
        "tensors": [
            {"name": one.name, "bytes": one.size_bytes, "dtype": one.dtype, "process_set": one.process_set}
            for one in trace.tensors
        ],
        "steps": [
            {
                "index": step.index,
                "start_s": step.start_s,
                "arrivals": [[arrival.tensor, arrival.time_s] for arrival in step.arrivals],
                "collectives": [
                    {
                        "kind": one.kind,
                        "tensors": list(one.tensors),
                        "bytes": one.size_bytes,
                        "start_s": one.start_s,
                        "end_s": one.end_s,
                    }
                    for one in step.collectives
                ],
                "coordination_rounds": step.coordination_rounds,
            }
            for step in trace.steps
        ],
        "totals": {
            "steps": trace.totals.steps,
            "coordination_rounds": trace.totals.coordination_rounds,
            "messages": trace.totals.messages,
            "bytes": trace.totals.size_bytes,
        },
    }


def to_json(trace: Trace) -> dict[str, Any]:
    """A merged trace as JSON values."""
    ranks = [rank_to_json(one) for one in trace.ranks]
    return {"format": FORMAT, "version": VERSION, "size": trace.size, "ranks": ranks}


def write(value: dict[str, Any], path: Path) -> None:
    """Write JSON values so that `path` is never seen half-written. Raises UserError if it cannot be written."""
    temporary = path.with_name(path.name + ".part")
    try:
        temporary.write_text(json.dumps(value) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(
            f"The trace {path} cannot be written: {error.strerror}.", "Name a file in a folder you may write to."
        ) from None


def part_path(path: Path, rank: int) -> Path:
    """Where `rank` writes its own trace when the run's trace is `path`."""
    return path.with_name(f"{path.name}.rank{rank}.json")


def parts(path: Path) -> list[Path]:
    """The ranks' own files that belong to the trace `path`, in order of rank."""
    form = re.compile(re.escape(path.name) + r"\.rank(\d+)\.json")
    found = [(int(match[1]), file) for file in path.parent.glob("*") if (match := form.fullmatch(file.name))]
    return [file for _, file in sorted(found)]


def merge(traces: Iterable[Trace]) -> Trace:
    """One trace of all ranks. Raises ValueError if two hold the same rank or saw worlds of different sizes."""
    ranks = sorted((one for trace in traces for one in trace.ranks), key=lambda one: one.rank)
    if not ranks:
        raise ValueError("there is nothing to merge")
    trace = Trace(ranks[0].size, tuple(ranks))
    try:
        _check_ranks(trace)
    except _Wrong as wrong:
        raise ValueError(str(wrong)) from None
    return trace
