"""Work before a rank leaves, in shutdown() and at the end of a script, if exchanges are not synchronous.

Ranks with a partial exchange finish at different times, and ranks with a local or pipelined one have updates left. A
rank that leaves takes part in the others' rounds until all have finished. Then all ranks make the updates that are
left, and make their models equal.
"""

from __future__ import annotations

import ctypes
import gc
import zlib
from collections.abc import Sequence

from paceline import config
from paceline.errors import UserError
from paceline.exchange.ending import Ending, endings, process_sets, wait_for_arrivals
from paceline.leaving import reasons
from paceline.leaving.waiting import wait_for_all
from paceline.log import log
from paceline.native.agreement import extremes

_SAME = "Keep the same models and optimizers on all ranks until the end, or call drain() on all of them before."


def leave(library: ctypes.CDLL) -> None:
    """Take part until all ranks of `library` have finished, make the updates left, and report them on one rank.

    Does nothing if this rank leaves by an exception, if the ranks only restart (elastic training), or if all exchanges
    are synchronous. Never raises, because the exit must not fail for it.
    """
    if library.horovod_size() == 1 or reasons.resetting() or reasons.failed():
        return
    try:
        wait_for_arrivals(library)
    except (UserError, RuntimeError) as error:
        log(f"rank {library.horovod_rank()}, at its end: {error}")
        return
    sets = process_sets(library)
    if not sets:
        return
    gc.collect()  # so that the same objects are alive on all ranks
    left = {number: [one.exchange.left for one in endings(library, number)] for number in sets}
    library.horovod_paceline_partial_flush_all()
    why = wait_for_all(library, config.settings().drain_limit_s)
    if why:
        log(f"rank {library.horovod_rank()} is through and leaves before the others: {why}.")
        return
    for number in sets:
        try:
            _finish(library, number, left[number])
        except (UserError, RuntimeError) as error:  # another rank was lost; that rank reports why
            log(f"rank {library.horovod_rank()}, at its end: {error}")
    _meet(library, 0, "left", [0])


def _finish(library: ctypes.CDLL, process_set_id: int, left: Sequence[int]) -> None:
    """Drain all exchanges of a process set, and average models that differ after that."""
    all_of = endings(library, process_set_id)
    labels = zlib.crc32(repr([one.exchange.wire.label for one in all_of]).encode())
    together = _meet(library, process_set_id, "held", [len(all_of), labels])
    alike = len(together) > 0 and all(least == most for least, most in together)
    if not alike:
        log(
            f"rank {library.horovod_rank()} ends with {len(all_of)} optimizers and tapes, others with other ones: what "
            f"is left of their updates is not made known to all, and models may differ. {_SAME}"
        )
    most = [most for _, most in _meet(library, process_set_id, "updates", left)] if alike and left else list(left)
    for one, updates in zip(all_of, most, strict=True):
        if updates and (alike or one.exchange.drains_alone):
            _end(library, process_set_id, one, alike)


def _end(library: ctypes.CDLL, process_set_id: int, one: Ending, alike: bool) -> None:
    around = one.exchange.around
    around.leaving = True
    try:
        left = around.left
        made = one.drain() or left
        if not alike:
            return
        met = _meet(library, process_set_id, f"made.{one.exchange.wire.label}", [made])
        if not met:  # another rank has left
            return
        most = met[0][1]
        if one.exchange.models_differ:
            around.average(one.weights)
    finally:
        around.leaving = False
    if most and library.horovod_rank() == 0:
        settings = one.exchange.settings
        what = (
            f"up to {most} updates since the last average were averaged"
            if left
            else f"{most} more update{'s were' if most > 1 else ' was'} made with gradients that were left"
        )
        log(
            f"at the end of {one.exchange.wire.label} ({type(settings).__name__.lower()}) {what}. Models that were "
            f"saved or evaluated before lack that: call {one.how} on all ranks after the last step."
        )


def _meet(library: ctypes.CDLL, process_set_id: int, what: str, values: Sequence[int]) -> list[tuple[int, int]]:
    """Return the minimum and maximum of each value over the ranks; [] if a rank has left."""
    met = extremes(library, process_set_id, f"paceline.leaving.{what}", values)
    return [] if met.reason else list(zip(met.least, met.most, strict=True))
