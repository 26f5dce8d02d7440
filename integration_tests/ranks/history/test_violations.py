"""Histories of real trainings that are changed afterwards: each change is found, and described."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from integration_tests.ranks.history.test_torch import STEPS, _body
from integration_tests.support.histories import checked, edit
from integration_tests.support.ranks import run_ranks
from paceline.history.checks.checker import check
from paceline.history.checks.reading import records_of
from paceline.history.checks.results import Check, Violation
from paceline.history.records import Applied, Averaged, Lost, Made, Produced, Record, Weights

SIZE = 3
STEP = 12
TENSOR = "2.weight"
EXCHANGES = {"sync": "sync", "k4": "pipelined", "quorum": "partial", "split": "split", "local": "local"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that trains with one of EXCHANGES, once, and returns the folder of the history."""
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name)
            run_ranks(_body, SIZE, str(made[name]), name)
            checked(made[name], EXCHANGES[name])
        return made[name]

    return folder


@pytest.fixture
def copy(recorded: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that returns a copy of a history, to be changed."""

    def folder(name: str) -> Path:
        return Path(shutil.copytree(recorded(name), tmp_path / name))

    return folder


def changed(
    folder: Path, rank: int, wanted: Callable[[Record], bool], change: Callable[[Record], list[Record]]
) -> None:
    """Change records of a rank; at least one must be wanted."""
    found: list[Record] = []

    def replace(records: list[Record]) -> list[Record]:
        found.extend(one for one in records if wanted(one))
        return [new for one in records for new in (change(one) if wanted(one) else [one])]

    edit(folder / f"history-{rank}.jsonl", replace)
    assert found


def is_of(kind: type[Record], step: int = STEP, tensor: str = TENSOR) -> Callable[[Record], bool]:
    return lambda one: (
        isinstance(one, kind) and getattr(one, "step", 0) == step and getattr(one, "tensor", "") == tensor
    )


def with_(**fields: object) -> Callable[[Record], list[Record]]:
    return lambda one: [msgspec.structs.replace(one, **fields)]


def record(folder: Path, rank: int, wanted: Callable[[Record], bool]) -> Any:
    """Return the first wanted record of a rank."""
    return next(one for one in records_of(folder / f"history-{rank}.jsonl") if wanted(one))


def only(folder: Path, check_: Check, rank: int | None = None) -> list[Violation]:
    """Return the violations, which must all be of one check, and of one rank unless that is None."""
    found = check(folder).violations
    assert found
    assert {one.check for one in found} == {check_}, list(map(str, found))
    assert rank is None or {one.rank for one in found} == {rank}, list(map(str, found))
    return found


@pytest.mark.parametrize("name", ["sync", "k4"])
def test_a_dropped_gradient(name: str, copy: Callable[[str], Path]) -> None:
    """The result of all ranks lacks what rank 1 has submitted."""
    folder = copy(name)
    lost = record(folder, 1, is_of(Produced))

    def of_step(one: Record) -> bool:
        return isinstance(one, Applied) and one.of == STEP and one.tensor == TENSOR

    def without(one: Record) -> list[Record]:
        assert isinstance(one, Applied)
        sums = msgspec.structs.replace(
            one.sums,
            plain=one.sums.plain - lost.sums.plain / SIZE,
            placed=one.sums.placed - lost.sums.placed / SIZE,
        )
        return [msgspec.structs.replace(one, sums=sums)]

    for rank in range(SIZE):
        changed(folder, rank, of_step, without)
    (found,) = only(folder, Check.SUM)
    assert "the gradient of rank 1 is missing" in str(found) and f"{TENSOR}, step" in str(found)


@pytest.mark.parametrize("name", ["sync", "k4"])
def test_a_gradient_that_is_applied_twice(name: str, copy: Callable[[str], Path]) -> None:
    folder = copy(name)
    earlier = record(folder, 2, is_of(Applied, STEP - 1))
    changed(folder, 2, is_of(Applied), with_(of=earlier.of, sums=earlier.sums))
    found = check(folder).violations
    assert {one.rank for one in found} == {2}
    by_check = {one.check: one for one in found}
    assert set(by_check) >= {Check.ONCE, Check.KEPT}
    assert by_check[Check.ONCE].step == STEP and by_check[Check.ONCE].tensor == TENSOR


@pytest.mark.parametrize("name", ["sync", "k4"])
def test_swapped_gradients_of_two_tensors(name: str, copy: Callable[[str], Path]) -> None:
    """All ranks receive the two results in the wrong place, so that hashes cannot show it."""
    folder = copy(name)
    other = "0.weight"
    for rank in range(SIZE):
        two = {tensor: record(folder, rank, is_of(Applied, STEP, tensor)) for tensor in (TENSOR, other)}
        changed(folder, rank, is_of(Applied), with_(sums=two[other].sums))
        changed(folder, rank, is_of(Applied, STEP, other), with_(sums=two[TENSOR].sums))
    found = {one.tensor: one for one in only(folder, Check.SUM)}
    assert set(found) == {TENSOR, other}
    assert found[TENSOR].found.endswith(f" of {other}") and found[other].found.endswith(f" of {TENSOR}")


def test_a_stale_gradient(copy: Callable[[str], Path]) -> None:
    """A rank receives the results of each tensor one step later than it may."""
    folder = copy("k4")

    def delayed(records: list[Record]) -> list[Record]:
        before = [one for one in records if isinstance(one, Applied) and one.tensor == TENSOR and one.step > STEP]
        earlier = iter([record(folder, 0, is_of(Applied, STEP)), *before])
        return [
            msgspec.structs.replace(one, of=late.of, sums=late.sums)
            if one in before and (late := next(earlier)) is not None
            else one
            for one in records
        ]

    edit(folder / "history-0.jsonl", delayed)
    found = check(folder).violations
    stale = [one for one in found if one.check is Check.STALE]
    assert [one.found for one in stale] == ["4"] * (STEPS - STEP) and {one.rank for one in found} == {0}
    assert all(one.expected == "a delay of at most 3 updates" for one in stale)


def test_a_round_without_its_quorum(copy: Callable[[str], Path]) -> None:
    folder = copy("quorum")
    for rank in range(SIZE):
        changed(folder, rank, lambda one: isinstance(one, Made), with_(quorum=SIZE))
    found = only(folder, Check.QUORUM)
    assert all(one.expected.endswith("gradients of 3 ranks") for one in found)
    assert {one.found for one in found} <= {"those of 2", "those of 1"}


def test_a_late_gradient_that_no_round_takes(copy: Callable[[str], Path]) -> None:
    folder = copy("quorum")

    def forgets(records: list[Record]) -> list[Record]:
        """The rank ends with a gradient that it has submitted, and that is in no result."""
        last = max(at for at, one in enumerate(records) if isinstance(one, Produced) and one.tensor == TENSOR)
        return [*records[: last + 1], records[last], *records[last + 1 :]]

    edit(folder / "history-1.jsonl", forgets)
    found = check(folder).violations
    assert {one.check for one in found} & {Check.SUM, Check.KEPT}


def test_a_round_that_is_received_twice(copy: Callable[[str], Path]) -> None:
    folder = copy("quorum")
    changed(folder, 1, is_of(Applied), lambda one: [one, one])
    (found,) = only(folder, Check.ONCE, 1)
    assert found.step == STEP


def test_a_result_that_differs_on_one_rank(copy: Callable[[str], Path]) -> None:
    folder = copy("sync")
    applied = record(folder, 2, is_of(Applied))
    changed(folder, 2, is_of(Applied), with_(sums=msgspec.structs.replace(applied.sums, hash=1)))
    (found,) = only(folder, Check.SAME, 2)
    assert "00000001" in found.found


def test_a_shard_that_is_not_reduced(copy: Callable[[str], Path]) -> None:
    folder = copy("split")
    applied = record(folder, 1, lambda one: isinstance(one, Applied) and one.step == STEP)
    bucket = applied.tensor
    own = record(folder, 1, is_of(Produced, STEP, bucket))
    sums = msgspec.structs.replace(applied.sums, plain=own.sums.plain)
    changed(folder, 1, is_of(Applied, STEP, bucket), with_(sums=sums))
    assert [(one.tensor, one.step) for one in only(folder, Check.SUM)] == [(bucket, STEP)]


def test_weights_of_an_owner_that_do_not_arrive(copy: Callable[[str], Path]) -> None:
    folder = copy("split")
    before = record(folder, 2, lambda one: isinstance(one, Weights) and one.step == STEP - 1)
    changed(
        folder, 2, lambda one: isinstance(one, Weights) and one.step == STEP,
        lambda one: [msgspec.structs.replace(one, hashes={**one.hashes, 2: before.hashes[2]})],  # type: ignore[attr-defined]
    )  # fmt: skip
    (found,) = only(folder, Check.WEIGHTS, 2)
    assert (found.tensor, found.step) == ("weight 2", STEP)


def test_a_mean_that_lacks_a_rank(copy: Callable[[str], Path]) -> None:
    folder = copy("local")
    for rank in range(SIZE):
        wrong = record(folder, 0, lambda one: isinstance(one, Averaged) and (one.number, one.tensor) == (3, "2"))
        sums = msgspec.structs.replace(wrong.sums, plain=wrong.sums.plain * 2 / 3)
        changed(
            folder, rank, lambda one: isinstance(one, Averaged) and (one.number, one.tensor) == (4, "2"),
            with_(sums=sums),
        )  # fmt: skip
    assert "average 4" in only(folder, Check.MEAN)[0].expected


def test_a_missing_file(copy: Callable[[str], Path]) -> None:
    folder = copy("sync")
    (folder / "history-1.jsonl").unlink()
    assert {one.rank for one in only(folder, Check.COMPLETE)} == {1}


def test_gradients_reported_as_lost_are_no_violation(copy: Callable[[str], Path]) -> None:
    folder = copy("k4")
    for rank in range(SIZE):
        changed(
            folder, rank,
            lambda one: isinstance(one, Applied) and one.drain and one.tensor == TENSOR,
            lambda one: [Lost(one.x, one.step, one.tensor, (one.of,), "forget")],  # type: ignore[attr-defined]
        )  # fmt: skip
    results = check(folder)
    assert not results.violations and results.lost == {"forget": 3 * SIZE}
