"""Comparison of results of partial rounds with the gradients that entered them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from paceline.history.checks.adding import Total, bound, equal, sensitive
from paceline.history.checks.entries import Entries
from paceline.history.checks.results import Check, Results
from paceline.history.records import Applied, Made
from paceline.history.sums import Sums

# Possibilities that are tried for one result.
MOST_TRIED = 20_000

# By rank: its first gradient in a range of rounds, and the first one after the range.
_Taken = tuple[tuple[int, int], ...]


class RoundSums:
    """Sums of one tensor."""

    def __init__(self, made: Made, tensor: str, by_rank: Mapping[int, Entries], results: Results) -> None:
        self._made = made
        self._tensor = tensor
        self._by_rank = by_rank
        self._results = results
        self._prefixes: dict[int, list[Total]] = {}

    def check(self) -> None:
        """Compare every result of every rank."""
        usable = self._made.sums and set(self._by_rank) == set(self._made.ranks)
        given = [one for many in self._by_rank.values() for one in many.given]
        usable = usable and all(one.usable and one.stream.complete for one in self._by_rank.values())
        usable = usable and all(one.weight is None and one.sums.finite for one in given)
        for rank, one in self._by_rank.items():
            for applied in one.applied:
                if usable and applied.sums.finite:
                    self._check(rank, applied)
                else:
                    self._results.skip(Check.SUM)

    def _check(self, rank: int, applied: Applied) -> None:
        found = Total().plus(applied.sums, self._made.divisor)
        kept: list[_Taken] = []
        closest: tuple[float, Total, float] | None = None
        for number, taken in enumerate(self._possible(applied)):
            if number == MOST_TRIED:
                self._results.skip(Check.SUM)
                return
            wanted = self._sum(taken)
            limit = self._limit(taken, wanted, applied)
            if equal(found, wanted, limit):
                kept.append(taken)
            distance = abs(found.plain - wanted.plain)
            if closest is None or distance < closest[0]:
                closest = distance, wanted, limit
        if kept:
            limit = self._limit(kept[0], self._sum(kept[0]), applied)
            self._results[Check.SUM].sensitive += len(kept) == 1 and sensitive(self._given(kept[0]), limit)
        if len(kept) == 1:
            self._learn(applied, kept[0])
        wanted_text = "nothing" if closest is None else f"{closest[1].plain:.9g} within {closest[2]:.1g}"
        self._results.compare(
            Check.SUM, bool(kept), rank, self._tensor, applied.step,
            f"the sum of the gradients in rounds {applied.after + 1} to {applied.received}: {wanted_text}",
            f"{found.plain:.9g}",
        )  # fmt: skip

    def _possible(self, applied: Applied) -> Iterator[_Taken]:
        """Yield, for each possibility, the gradients of each rank in the rounds of a result."""
        choices = [
            [
                (begin, end)
                for begin in one.possible(applied.after)
                for end in one.possible(applied.received)
                if begin <= end
            ]
            for one in self._by_rank.values()
        ]
        return itertools.product(*choices)

    def _learn(self, applied: Applied, taken: _Taken) -> None:
        """Keep the only possibility, which narrows the bounds of others."""
        for one, (begin, end) in zip(self._by_rank.values(), taken, strict=True):
            one.facts.learn(applied.after, begin)
            one.facts.learn(applied.received, end)

    def _sum(self, taken: _Taken) -> Total:
        whole = Total()
        for rank, (begin, end) in zip(self._by_rank, taken, strict=True):
            sums = self._running(rank)
            whole = whole.plus(sums[end]).plus(sums[begin], -1.0)
        return Total(whole.plain, whole.placed, sum(one.size or 0.0 for one in self._given(taken)))

    def _given(self, taken: _Taken) -> list[Sums]:
        return [
            one.sums
            for entries, (begin, end) in zip(self._by_rank.values(), taken, strict=True)
            for one in entries.given[begin:end]
        ]

    def _running(self, rank: int) -> list[Total]:
        """Return the sums of the first gradients of a rank, by their number."""
        if rank not in self._prefixes:
            sums = [Total()]
            for one in self._by_rank[rank].given:
                sums.append(sums[-1].plus(one.sums))
            self._prefixes[rank] = sums
        return self._prefixes[rank]

    def _limit(self, taken: _Taken, wanted: Total, applied: Applied) -> float:
        """Return the bound of rounding errors: late gradients, and results of several rounds, are added up first."""
        additions = sum(end - begin for begin, end in taken) + applied.received - applied.after
        dtype = next(iter(self._by_rank.values())).given[0].dtype
        running = max(self._running(rank)[end].size for rank, (_, end) in zip(self._by_rank, taken, strict=True))
        own = applied.sums.count * 2.0**-53 * running  # differences of running sums
        return bound(wanted.size, applied.sums.count, additions, dtype, self._made.rounding) + own
