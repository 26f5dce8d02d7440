"""Cases of tests that try cells of the table of events."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from integration_tests.support.debug import debug
from integration_tests.support.events import ARMED, COLUMNS, EVENTS, RESIDUAL
from integration_tests.support.more import more

_TESTS = Path(__file__).resolve().parents[1]
CODECS = ("bf16", "q8")
UPDATES_OF_LOCAL = 4


class Members(NamedTuple):
    """Ranks of a process set, and Horovod's object of it."""

    ranks: Sequence[int]
    process_set: Any


def act_nowhere(moment: str) -> None:
    """Nothing happens at any moment of a step."""


def exchange_of(column: str, hvd: Any, size: int) -> Any:
    """The exchange of a column, which may go on with a codec, such as "pipelined, q8".

    A "partial" one waits for all ranks, so it equals one process in every step; "majority" and "solo" do not.
    """
    others = {
        "pipelined": "pipelined",
        "partial": hvd.Partial(quorum=size),
        "majority": "majority",
        "solo": "solo",
        "local": hvd.Local(sync_every=UPDATES_OF_LOCAL),
        "split": "split",
    }
    return others.get(column.partition(",")[0], "sync")


def always_exact(column: str) -> bool:
    """True if weights equal one process after each step: no gradient is in flight, or left on a rank."""
    return column.partition(",")[0] in ("sync", "partial", "split", RESIDUAL)


def updates_in_message(column: str) -> int:
    """Largest number of updates whose sum is encoded as one message."""
    return UPDATES_OF_LOCAL if column.startswith("local") else 1


def codec_of(column: str) -> str:
    """The codec of a column."""
    if column == RESIDUAL:
        return "q8"
    word = column.partition(", ")[2]
    return word if word in CODECS else "none"


def cases(file: str, test: str, later: Collection[str] = ()) -> list[Any]:
    """Event and column of all cells that name `test` of `file`, column by column: one world after the other.

    Columns of `later` are for `make test-more`.
    """
    wanted = f"{Path(file).resolve().relative_to(_TESTS)}::{test}"
    return [
        more(event.word, column) if column in later else (event.word, column)
        for column in COLUMNS
        for event in EVENTS
        if any(wanted in one.tests for one in event.cells[column])
    ]


def environment(column: str) -> dict[str, str]:
    """Of the world in which a column is tried."""
    return debug(armed=True, fusion_warmup_steps=3) if column == ARMED else {}


def label(column: str) -> str:
    """A column in names of operations."""
    return column.partition(" ")[0].rstrip(",")
