"""Histories as read from their files: by world, by exchange and by rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from paceline.errors import UserError
from paceline.history.records import FORMAT, AnyRecord, Ended, Made, Record, World

PATTERN = "history-*.jsonl"


@dataclass
class Stream:
    """Records of one exchange on one rank, in the order of their writing. `ended`: None if the rank wrote no end."""

    rank: int
    made: Made
    ended: Ended | None = None
    records: list[Record] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """True if the rank has ended as it should: everything that it did is here."""
        return self.ended is not None and not self.ended.failed


@dataclass
class WorldHistory:
    """One world: the beginnings that ranks have written, and the streams of each exchange by its label and rank."""

    number: int
    begun: list[World] = field(default_factory=list)
    ended: dict[int, Ended] = field(default_factory=dict)
    exchanges: dict[str, dict[int, Stream]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return max((one.size for one in self.begun), default=0)


def read(folder: Path) -> list[WorldHistory]:
    """Read all files in `folder`. Raises UserError if there are none, or for a line that is not a record."""
    paths = sorted(folder.glob(PATTERN))
    if not paths:
        raise UserError(
            f"{folder} has no files {PATTERN}.", "Train with PACELINE_HISTORY set to this folder, then check again."
        )
    worlds: dict[int, WorldHistory] = {}
    for path in paths:
        _read_file(path, worlds)
    return [worlds[number] for number in sorted(worlds)]


def _read_file(path: Path, worlds: dict[int, WorldHistory]) -> None:
    world, rank = WorldHistory(0), 0
    streams: dict[int, Stream] = {}
    for record in records_of(path):
        if isinstance(record, World):
            world, rank = worlds.setdefault(record.world, WorldHistory(record.world)), record.rank
            world.begun.append(record)
        elif isinstance(record, Ended):
            world.ended[rank] = record
            for one in streams.values():
                if one.made.world == record.world:
                    one.ended = record
        elif isinstance(record, Made):
            streams[record.x] = Stream(rank, record)
            world.exchanges.setdefault(record.label, {})[rank] = streams[record.x]
        elif (stream := streams.get(record.x)) is not None:  # type: ignore[attr-defined]
            stream.records.append(record)
        else:
            raise UserError(
                f"{path} has records of an exchange whose beginning is missing.", "Use the file as it was written."
            )


def records_of(path: Path) -> Iterator[Record]:
    """Yield the records of a file. A rank that was killed may have left a part of a line at the end.

    Raises UserError for another line that is not a record, and for a file of another version.
    """
    decoder = msgspec.json.Decoder(AnyRecord)
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            record: Record = decoder.decode(line)
        except ValueError as error:  # msgspec's errors are, and those of bytes that are no text
            if number == len(lines):
                return
            raise UserError(
                f"{path}, line {number}, is not a record of a history: {error}.", "Use the file as it was written."
            ) from None
        if isinstance(record, World) and record.format != FORMAT:
            raise UserError(
                f"{path} has format {record.format}, this version of Paceline reads {FORMAT}.",
                "Check it with the version that has written it.",
            )
        yield record
