"""Files of histories: their parts, what a killed rank leaves, and files that cannot be read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from paceline.errors import UserError
from paceline.history.checks.checker import check
from paceline.history.checks.entries import Entries, Steps
from paceline.history.checks.reading import Stream, read
from paceline.history.checks.results import Check
from paceline.history.records import Applied, Ended, Made, Produced, Record, Step, World
from paceline.history.sums import Sums

GIVEN = Sums(1, 2.0, 1.0, 2.0, 5)


def write(folder: Path, rank: int, *records: Record, tail: bytes = b"") -> None:
    lines = b"".join(msgspec.json.encode(one) + b"\n" for one in records)
    (folder / f"history-{rank}.jsonl").write_bytes(lines + tail)


def rank_of_two(rank: int, *steps: int, whole: bool = True) -> list[Record]:
    """A synchronous training of two ranks, which submit the same tensor."""
    made = Made(1, 7, "w", "sync", (0, 1), (0, 1), 2)
    updates: list[Record] = []
    for step in steps:
        updates += [Produced(1, step, "w", "float32", GIVEN), Applied(1, step, "w", GIVEN, of=step), Step(1, step)]
    return [World(7, rank, 2, "torch", 10 + rank), made, *updates, *([Ended(7)] if whole else [])]


def test_a_folder_without_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no files"):
        read(tmp_path)


def test_a_rank_that_was_killed_leaves_a_part_of_a_line(tmp_path: Path) -> None:
    write(tmp_path, 0, *rank_of_two(0, 1, 2, 3, whole=False))
    write(tmp_path, 1, *rank_of_two(1, 1, 2, whole=False), tail=b'{"record":"produced","x":1,"st')
    results = check(tmp_path)
    assert not results.violations
    assert results[Check.SUM].compared == 2 and results[Check.SUM].skipped == 1


def test_a_broken_line_within_a_file(tmp_path: Path) -> None:
    write(tmp_path, 0, *rank_of_two(0, 1), tail=b"broken\n\n")
    with pytest.raises(UserError, match=r"history-0.jsonl, line 7, is not a record"):
        read(tmp_path)


def test_a_file_of_another_version(tmp_path: Path) -> None:
    write(tmp_path, 0, World(7, 0, 1, "torch", 1, format=99))
    with pytest.raises(UserError, match="has format 99"):
        read(tmp_path)


def test_two_files_of_one_rank(tmp_path: Path) -> None:
    write(tmp_path, 0, *rank_of_two(0, 1))
    write(tmp_path, 1, *rank_of_two(0, 1))
    found = check(tmp_path).violations
    assert [(one.check, one.rank, one.found) for one in found][:2] == [
        (Check.COMPLETE, 0, "2 files"),
        (Check.COMPLETE, 1, "0 files"),
    ]


def test_nan_must_not_vanish(tmp_path: Path) -> None:
    lost = rank_of_two(1, 1)
    lost[2] = Produced(1, 1, "w", "float32", Sums(1, None, None, None, 5))
    write(tmp_path, 0, *rank_of_two(0, 1))
    write(tmp_path, 1, *lost)
    (found,) = check(tmp_path).violations
    assert found.expected == "NaN or infinity, which was submitted"


def test_known_values_of_a_function_that_never_falls() -> None:
    steps = Steps()
    assert steps.bounds(3, 9) == (0, 9) and steps.last == (0, 0)
    steps.learn(5, 4)
    steps.learn(2, 1)
    assert steps.bounds(2, 9) == (1, 1) and steps.bounds(3, 9) == (1, 4) and steps.bounds(6, 9) == (4, 9)
    steps.learn(3, 2)
    assert steps.bounds(3, 9) == (2, 2) and steps.bounds(1, 9) == (0, 1) and steps.last == (5, 4)


def test_gradients_that_rounds_have_taken() -> None:
    """The third result comes with a round more than the rank has received, which may have taken its gradient."""
    made = Made(1, 7, "w", "partial", (0, 1), (0, 1), 2, quorum=1)
    stream = Stream(0, made, Ended(7))
    for call, (rounds, pending) in enumerate([(1, 0), (2, 1), (4, 0)], 1):
        stream.records.append(Produced(1, call, "w", "float32", GIVEN))
        stream.records.append(
            Applied(1, call, "w", GIVEN, after=call - 1, received=call, rounds=rounds, pending=pending)
        )
    (one,) = Entries.of(stream).values()
    assert list(one.possible(1)) == [1] and list(one.possible(2)) == [1] and list(one.possible(3)) == [1, 2, 3]
    assert not one.may_contribute(2) and one.may_contribute(3) and one.pending == 0
