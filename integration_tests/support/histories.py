"""Trainings that write histories, and changes of what they have written."""

from __future__ import annotations

import importlib
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from paceline.history.checks.checker import check
from paceline.history.checks.reading import records_of
from paceline.history.checks.results import Check, Results
from paceline.history.records import Record

# Checks that must have compared something, by exchange.
OF_ALL = {Check.COMPLETE, Check.ONCE, Check.SUM, Check.KEPT}
OF_UPDATES = OF_ALL | {Check.PRODUCED, Check.STALE}
EXPECTED = {
    "sync": OF_UPDATES | {Check.SAME, Check.WEIGHTS},
    "pipelined": OF_UPDATES | {Check.SAME, Check.WEIGHTS},
    "partial": OF_ALL | {Check.QUORUM},
    "split": OF_UPDATES | {Check.WEIGHTS},
    "local": OF_UPDATES | {Check.SAME, Check.WEIGHTS, Check.MEAN},
}


@contextmanager
def history(folder: str, module: str = "paceline.torch") -> Iterator[Any]:
    """A world whose ranks write to `folder`; yields the module with this name."""
    os.environ["PACELINE_HISTORY"] = folder
    hvd: Any = importlib.import_module(module)
    hvd.init()
    try:
        yield hvd
    finally:
        hvd.shutdown()
        del os.environ["PACELINE_HISTORY"]


def train(
    rank: int,
    hvd: Any,
    steps: int,
    model: Any,
    optimizer: Any,
    late: float = 0.0,
    each: Callable[[int], None] = lambda step: None,
) -> None:
    """Train on data of this rank. `late`: share of the steps that begin some milliseconds later."""
    from integration_tests.support.torch_training import loss_of, update

    chance = random.Random(rank)
    for step in range(steps):
        if chance.random() < late:
            time.sleep(chance.random() * 0.02)
        each(step)
        update(optimizer, loss_of(model, rank, step))


def counts(folder: Path) -> list[Counter[str]]:
    """Number of records of each kind, by file."""
    return [
        Counter(str(type(one).__struct_config__.tag) for one in records_of(path))
        for path in sorted(folder.glob("history-*.jsonl"))
    ]


def checked(folder: Path, exchange: str, without: frozenset[Check] = frozenset()) -> Results:
    """Check a history that must have no violations, and of which all checks of its exchange but some have seen much."""
    results = check(folder)
    assert not results.violations, "\n".join(map(str, results.violations[:20]))
    unseen = [one for one in EXPECTED[exchange] - without if not results[one].compared]
    assert not unseen, unseen
    return results


def edit(path: Path, change: Callable[[list[Record]], list[Record]]) -> None:
    """Replace the records of a file by `change(records)`."""
    lines = [msgspec.json.encode(one) for one in change(list(records_of(path)))]
    path.write_bytes(b"\n".join(lines) + b"\n")
