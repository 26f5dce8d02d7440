"""Check of a history: which checks are made for which exchange.

    check                    sync  pipelined  split          partial             local
    produced                 yes   yes        yes            -                   yes
    once                     yes   yes        yes            rounds              yes
    same result              yes   yes        sparse ones    rounds              averages
    sums                     yes   yes        of all shards  missed="sum"        yes (own gradient)
    staleness                0     K - 1      0              max_lag             0
    quorum                   -     -          -              yes                 -
    applied or lost          yes   yes        yes            yes                 yes
    weights                  yes   yes [1]    yes            after averages      after averages [2]
    means                    -     -          -              with sync_every     yes

    [1] without compensation, which gives each rank its own prediction   [2] with mixing=0

Sums are not compared for lossy codecs, for a compression of the user's, and for partial rounds that divide by weights.
"""

from __future__ import annotations

from pathlib import Path

from paceline.history.checks.models import check_means, check_weights
from paceline.history.checks.reading import Stream, WorldHistory, read
from paceline.history.checks.results import Check, Results
from paceline.history.checks.rounds import RoundsOfExchange
from paceline.history.checks.updates import Updates


def check(folder: Path) -> Results:
    """Check all worlds in a folder. Raises UserError if there is no history."""
    results = Results()
    for world in read(folder):
        _check_world(world, results)
    return results


def _check_world(world: WorldHistory, results: Results) -> None:
    ranks = [one.rank for one in world.begun]
    for rank in range(world.size):
        count = ranks.count(rank)
        results.compare(Check.COMPLETE, count == 1, rank, "", 0, "one file of this rank", f"{count} files")
    for label, streams in world.exchanges.items():
        _check_exchange(label, streams, results)


def _check_exchange(label: str, streams: dict[int, Stream], results: Results) -> None:
    made = next(iter(streams.values())).made
    for rank in made.averaged:
        results.compare(Check.COMPLETE, rank in streams, rank, label, 0, "records of this exchange", "none")
    if made.exchange == "partial":
        RoundsOfExchange(streams, results).check()
    else:
        Updates(streams, results).check()
    check_weights(streams, results)
    check_means(streams, results)
