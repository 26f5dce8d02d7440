"""Checks of partial rounds.

A round takes the send buffers of all ranks, so the gradients of a rank in rounds 1 to r are its first k(r) gradients.
k(r) is not recorded, but bounded: whenever a rank received a result, it recorded how many rounds there were and how
many of its gradients none of them had taken. Where the bounds leave several possibilities, one of them must explain the
sums; which one is then known for later comparisons.
"""

from __future__ import annotations

from collections.abc import Mapping

from paceline.history.checks.entries import Entries
from paceline.history.checks.reading import Stream
from paceline.history.checks.results import Check, Results
from paceline.history.checks.round_sums import RoundSums
from paceline.history.records import Applied, Drained, Made


class RoundsOfExchange:
    """Checks of one exchange in one world."""

    def __init__(self, streams: Mapping[int, Stream], results: Results) -> None:
        self._results = results
        self._streams = dict(sorted(streams.items()))
        self._made: Made = next(iter(streams.values())).made

    def check(self) -> None:
        """Make all checks, tensor by tensor."""
        entries = {rank: Entries.of(stream) for rank, stream in self._streams.items()}
        for tensor in sorted({name for many in entries.values() for name in many}):
            by_rank = {rank: many[tensor] for rank, many in entries.items() if tensor in many}
            for rank, one in by_rank.items():
                self._check_ranges(rank, tensor, one)
                self._check_kept(rank, tensor, one)
            self._check_same(tensor, by_rank)
            RoundSums(self._made, tensor, by_rank, self._results).check()
            self._check_quorum(tensor, by_rank)

    def _check_ranges(self, rank: int, tensor: str, one: Entries) -> None:
        """Each round is received once, in order, and not too late."""
        results, received = self._results, one.first
        for applied in one.applied:
            results.compare(
                Check.ONCE, applied.after == received and applied.received >= applied.after, rank, tensor,
                applied.step, f"results of the rounds after {received}",
                f"those of rounds {applied.after + 1} to {applied.received}",
            )  # fmt: skip
            received = applied.received
            received = one.discarded.get(received, received)
            if self._made.max_lag and not applied.drain:
                missed = applied.received - applied.after - 1
                results.compare(
                    Check.STALE, missed <= self._made.max_lag, rank, tensor, applied.step,
                    f"at most {self._made.max_lag} rounds missed in a row", missed,
                )  # fmt: skip

    def _check_kept(self, rank: int, tensor: str, one: Entries) -> None:
        """Late gradients have entered a round in the end."""
        if not one.stream.complete or one.forgotten:
            self._results.lose("forget" if one.forgotten else "the rank did not end", one.pending)
            return
        self._results.compare(
            Check.KEPT, not one.pending, rank, tensor, one.steps,
            f"all {one.produced} gradients in rounds", f"{one.pending} late ones that no round has taken",
        )  # fmt: skip
        self._results[Check.KEPT].compared += max(0, one.produced - 1)

    def _check_same(self, tensor: str, by_rank: Mapping[int, Entries]) -> None:
        """All ranks receive the same result of a round; sums of several rounds are compared by `RoundSums`."""
        known: dict[int, tuple[int, Applied]] = {}
        for rank, one in by_rank.items():
            for place, applied in enumerate(one.applied):
                if applied.received != applied.after + 1:
                    continue
                if place in one.restored:
                    self._results.skip(Check.SAME)
                    continue
                first, reference = known.setdefault(applied.received, (rank, applied))
                if first != rank:
                    self._results.compare(
                        Check.SAME, applied.sums.hash == reference.sums.hash, rank, tensor, applied.step,
                        f"the result of rank {first} for round {applied.received}",
                        f"another one (checksum {applied.sums.hash:08x} and not {reference.sums.hash:08x})",
                    )  # fmt: skip

    def _check_quorum(self, tensor: str, by_rank: Mapping[int, Entries]) -> None:
        """As many ranks as the quorum have contributed to each round; the first one waits for all."""
        closing = {
            record.rounds[tensor]
            for stream in self._streams.values()
            for record in stream.records
            if isinstance(record, Drained) and tensor in record.rounds
        }
        if not all(one.stream.complete for one in by_rank.values()):
            self._results.skip(Check.QUORUM)
            return
        rounds = min((one.rounds for one in by_rank.values()), default=0)
        begin = max((one.first for one in by_rank.values()), default=0)
        quorum, seen, first = self._made.quorum or 1, _seen(by_rank), next(iter(by_rank))
        for number in range(begin + 1, rounds + 1):
            if number in closing:  # a drain sends whatever is left
                continue
            came = [rank for rank, one in by_rank.items() if one.may_contribute(number)]
            present = [rank for rank, one in by_rank.items() if not one.may_rest(number)]
            needed = len(by_rank) if number == 1 else min(quorum, len(present))
            rank, step = seen.get(number, (first, 0))
            self._results.compare(
                Check.QUORUM, len(came) >= needed, rank, tensor, step,
                f"round {number} to have gradients of {needed} ranks", f"those of {len(came)}",
            )  # fmt: skip


def _seen(by_rank: Mapping[int, Entries]) -> dict[int, tuple[int, int]]:
    """Return the first rank that received each round, and its step."""
    found: dict[int, tuple[int, int]] = {}
    for rank, one in by_rank.items():
        for applied in one.applied:
            for number in range(applied.after + 1, applied.received + 1):
                found.setdefault(number, (rank, applied.step))
    return found
