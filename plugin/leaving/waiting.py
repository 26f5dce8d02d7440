"""Wait of a finished rank for the others: status messages that it receives, and reports to the user."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import NamedTuple

from paceline.log import log

# Intervals between polls, and between queries of the other ranks, which grow.
_LOOK_S = 0.002
_FIRST_ASK_S, _LAST_ASK_S, _GROWTH = 0.02, 1.0, 1.5
# Delay of the first report, which doubles for each further one up to the maximum.
_FIRST_LINE_S, _LINES_S = 2.0, 60.0
# Ranks that wait this long for an operation of all ranks, without an update, wait for the finished ranks.
_STUCK_S = 3.0


class Standing(NamedTuple):
    """Status of one rank: finished; waiting for an operation of all ranks; updates made with a partial exchange."""

    through: bool
    waits: bool
    updates: int


def standings(library: ctypes.CDLL, size: int) -> tuple[int, list[Standing]]:
    """Return the number of this rank's last answered query, -1 if the world has ended, and the ranks' status."""
    out = (ctypes.c_int64 * (3 * size))()
    number = int(library.horovod_paceline_leaving_heard(out, size))
    return number, [Standing(bool(out[n]), bool(out[n + 1]), out[n + 2]) for n in range(0, 3 * size, 3)]


def wait_for_all(library: ctypes.CDLL, limit_s: float) -> str:
    """Wait until all ranks have finished; return "" then, else the reason, as the end of a sentence about this rank.

    Aborts after `limit_s` without a new update or a newly finished rank, and if the other ranks wait for an operation
    that this rank will not call.
    """
    rank, size = int(library.horovod_rank()), int(library.horovod_size())
    begin = changed = last_ask = time.monotonic()
    ask_s, line_s, next_line = _FIRST_ASK_S, _FIRST_LINE_S, begin + _FIRST_LINE_S
    asked = int(library.horovod_paceline_leaving_ask(1))
    first: list[Standing] | None = None
    before: list[Standing] = []
    said = False
    while True:
        time.sleep(_LOOK_S)
        now = time.monotonic()
        number, heard = standings(library, size)
        if number < 0:
            return "" if before and all(one.through for one in before) else "the world ended meanwhile"
        if number < asked:
            continue
        if all(one.through for one in heard):
            if said:
                log(f"all ranks are through, after {now - begin:.0f} s.")
            return ""
        first = first or heard
        if heard != before:
            before, changed = heard, now
        missing = [other for other, one in enumerate(heard) if not one.through]
        if all(heard[other].waits for other in missing) and now - changed > _STUCK_S:
            return f"{_ranks(missing)} {_verb(missing, 'wait')} for an operation that it has not called"
        if now - changed > limit_s:
            return f"nothing was heard of {_ranks(missing)} for {limit_s:.0f} s (PACELINE_DRAIN_LIMIT_S)"
        if now >= next_line:
            line_s = min(2 * line_s, _LINES_S)
            next_line = now + line_s
            if rank == min(other for other, one in enumerate(heard) if one.through):
                said = True
                log(line(rank, heard, first, now - begin))
        if now - last_ask >= ask_s:
            ask_s, last_ask = min(ask_s * _GROWTH, _LAST_ASK_S), now
            asked = int(library.horovod_paceline_leaving_ask(1))


def line(rank: int, heard: Sequence[Standing], first: Sequence[Standing], waited_s: float) -> str:
    """Describe the ranks that this rank waits for and the expected wait, from the first status and the current one."""
    missing = [other for other, one in enumerate(heard) if not one.through]
    left = max(heard[rank].updates - heard[other].updates for other in missing)
    text = f"rank {rank} is through and waits for {_ranks(missing)}"
    if left <= 0 or not heard[rank].updates:
        return f"{text}, for {waited_s:.0f} s so far."
    slowest = max(missing, key=lambda other: heard[rank].updates - heard[other].updates)
    made = heard[slowest].updates - first[slowest].updates
    about = f", about {left * waited_s / made:.0f} s" if made > 0 else ""
    return f"{text}: {left} more update{'s' * (left > 1)} of {heard[rank].updates}{about}."


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _verb(ranks: Sequence[int], verb: str) -> str:
    return verb if len(ranks) > 1 else f"{verb}s"
