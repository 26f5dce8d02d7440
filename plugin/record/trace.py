"""The trace of a run, which `paceline record` writes: typed values, with loading, checking and merging.

A file holds either one rank's trace or the merged trace of all ranks. Times are seconds since that rank's recording
began, on its own steady clock; clocks of different ranks are not comparable. docs/developers/trace.md describes the
format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from paceline.errors import UserError

FORMAT = "paceline-trace"
VERSION: Final = 1

Count = Annotated[int, Meta(ge=0)]
# Name of size_bytes in files.
_AS_BYTES = {"size_bytes": "bytes"}


class Tensor(Struct, frozen=True, rename=_AS_BYTES):
    """A tensor that took part: its name in Horovod, its size, the name of its data type, its process set."""

    name: str
    size_bytes: Count
    dtype: str
    process_set: Count


class Arrival(Struct, frozen=True, array_like=True):
    """Time at which this rank submitted the tensor with this id (its index in the list of tensors) to Horovod."""

    tensor: Count
    time_s: float


class Collective(Struct, frozen=True, rename=_AS_BYTES):
    """One message: the kind of operation, the ids of the tensors merged into it, its payload and its duration."""

    kind: str
    tensors: tuple[Count, ...]
    size_bytes: Count
    start_s: float
    end_s: float

    def __post_init__(self) -> None:
        if self.end_s < self.start_s:
            raise ValueError(f"it ends before it starts ({self.end_s} s < {self.start_s} s)")


class Step(Struct, frozen=True):
    """One training step of one rank; `start_s` is the time of its first arrival.

    Collectives are in the order in which they began.
    """

    index: Count
    start_s: float
    arrivals: tuple[Arrival, ...]
    collectives: tuple[Collective, ...]
    coordination_rounds: Count


class Totals(Struct, frozen=True, rename=_AS_BYTES):
    """Sums over the steps that were kept."""

    steps: Count
    coordination_rounds: Count
    messages: Count
    size_bytes: Count


class Costs(Struct, frozen=True):
    """Measurement of all ranks before they made a plan.

    Attributes:
        stock: (bytes, seconds) of single messages by Horovod's own collective.
        armed: (bytes, seconds) of single messages by the fastest of Paceline's collectives.
        work_s: time that a message adds, apart from its bytes, to others in flight at the same time.
        coordination_s: time of one coordination round.
    """

    stock: tuple[tuple[float, float], ...]
    armed: tuple[tuple[float, float], ...]
    work_s: float
    coordination_s: float


class Processors(Struct, frozen=True):
    """Average number of processors that a rank's process `used`, and all processes and the kernel (`busy`).

    `machine` identifies the machine, which has `cores` processors.
    """

    machine: str
    cores: Annotated[int, Meta(ge=1)]
    used: Annotated[float, Meta(ge=0)]
    busy: Annotated[float, Meta(ge=0)] = 0.0


class RankTrace(Struct, frozen=True, tag_field="format", tag=FORMAT):
    """Trace of one rank. Raises ValueError for values that contradict each other."""

    rank: Count
    size: Count
    host: str
    library: str
    horovod: str
    paceline: str
    tensors: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    totals: Totals
    costs: Costs | UnsetType = UNSET
    processors: Processors | UnsetType = UNSET
    version: Literal[1] = VERSION

    def __post_init__(self) -> None:
        if self.rank >= self.size:
            raise ValueError(f"rank {self.rank} cannot be in a world of {self.size}")
        for before, after in zip(self.steps, self.steps[1:], strict=False):
            if after.index <= before.index or after.start_s < before.start_s:
                raise ValueError(f"step {after.index} follows step {before.index} but does not come after it")
        for step in self.steps:
            used = [arrival.tensor for arrival in step.arrivals]
            used += [tensor for collective in step.collectives for tensor in collective.tensors]
            if used and max(used) >= len(self.tensors):
                raise ValueError(f"step {step.index} names tensor {max(used)} of {len(self.tensors)}")


class Trace(Struct, frozen=True, tag_field="format", tag=FORMAT):
    """Traces of all ranks of a world of `size`; `ranks` are in order of rank, and some may be missing.

    Raises ValueError for ranks that do not belong together.
    """

    size: Count
    ranks: tuple[RankTrace, ...]
    version: Literal[1] = VERSION

    def __post_init__(self) -> None:
        found = [one.rank for one in self.ranks]
        if found != sorted(set(found)):
            raise ValueError(f"the ranks {found} must differ and be in order")
        for one in self.ranks:
            if one.size != self.size:
                raise ValueError(f"rank {one.rank} saw a world of {one.size}, the trace says {self.size}")

    @property
    def costs(self) -> Costs | None:
        """Measurement of all ranks, or None."""
        return next((one.costs for one in self.ranks if one.costs is not UNSET), None)

    @property
    def busy_share(self) -> float:
        """Share of its processors that the busiest machine used; 0 if it is unknown.

        Ranks whose traces have no `busy` count with what their processes used.
        """
        used: dict[str, float] = {}
        shares = [0.0]
        for one in self.ranks:
            if (on := one.processors) is not UNSET:
                used[on.machine] = used.get(on.machine, 0.0) + on.used
                shares.append(max(used[on.machine], on.busy) / on.cores)
        return min(1.0, max(shares))

    @property
    def missing(self) -> list[int]:
        """Ranks without a trace."""
        return sorted(set(range(self.size)) - {trace.rank for trace in self.ranks})


class _Header(Struct):
    """Fields that distinguish the two kinds of file, and other files."""

    format: str = ""
    version: int = 0
    ranks: Raw | UnsetType = UNSET


def decode(content: bytes) -> Trace:
    """Decode a trace from JSON, of one rank or of all. Raises ValueError that names the place and the error."""
    try:
        header = msgspec.json.decode(content, type=_Header)
    except msgspec.ValidationError:
        header = _Header()
    except msgspec.DecodeError as error:
        raise ValueError(f"it is cut short or not JSON ({error})") from None
    if header.format != FORMAT:
        raise ValueError("it is not a Paceline trace")
    if header.version != VERSION:
        raise ValueError(f"its format has version {header.version}, this Paceline reads version {VERSION}")
    if header.ranks is not UNSET:
        return msgspec.json.decode(content, type=Trace)
    one = msgspec.json.decode(content, type=RankTrace)
    return Trace(one.size, (one,))


def load(path: Path) -> Trace:
    """Read the trace in `path`, of one rank or of all. Raises UserError that names the file and the error."""
    remedy = "Record it again with `paceline record`, or name the file that it wrote."
    try:
        return decode(path.read_bytes())
    except OSError as error:
        raise UserError(f"The trace {path} cannot be read: {error.strerror}.", remedy) from None
    except ValueError as error:  # msgspec's errors are
        raise UserError(f"The trace {path} cannot be used: {error}.", remedy) from None


def write(trace: Trace | RankTrace, path: Path) -> None:
    """Write a trace atomically, through a temporary file. Raises UserError if it cannot be written."""
    temporary = path.with_name(path.name + ".part")
    try:
        temporary.write_bytes(msgspec.json.encode(trace) + b"\n")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(
            f"The trace {path} cannot be written: {error.strerror}.", "Name a file in a folder you may write to."
        ) from None


def part_path(path: Path, rank: int) -> Path:
    """Return the path of the trace of `rank` when the run's trace is `path`."""
    return path.with_name(f"{path.name}.rank{rank}.json")


def parts(path: Path) -> list[Path]:
    """Return the ranks' own files that belong to the trace `path`, in order of rank."""
    form = re.compile(re.escape(path.name) + r"\.rank(\d+)\.json")
    found = [(int(match[1]), file) for file in path.parent.glob("*") if (match := form.fullmatch(file.name))]
    return [file for _, file in sorted(found)]


def merge(traces: Iterable[Trace]) -> Trace:
    """Merge traces into one. Raises ValueError if two hold the same rank or have different world sizes."""
    ranks = sorted((one for trace in traces for one in trace.ranks), key=lambda one: one.rank)
    if not ranks:
        raise ValueError("there is nothing to merge")
    return Trace(ranks[0].size, tuple(ranks))
