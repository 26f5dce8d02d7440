"""Checks of exchanges whose results are gradients of one step of all ranks: sync, pipelined, split; and local."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from paceline.history.checks.adding import Total, bound, equal, sensitive, total
from paceline.history.checks.reading import Stream
from paceline.history.checks.results import Check, Results, listed
from paceline.history.records import Applied, Lost, Produced, Step
from paceline.history.sums import Sums

# Owner of a bucket of which every rank has a shard.
EVERYONE = -1


@dataclass
class _Rank:
    """Records of one rank, by tensor and step."""

    stream: Stream
    produced: dict[tuple[str, int], Produced] = field(default_factory=dict)
    applied: list[Applied] = field(default_factory=list)
    lost: set[tuple[str, int]] = field(default_factory=set)
    dropped: set[tuple[str, int]] = field(default_factory=set)  # gradients of steps that the script has discarded
    forgotten: dict[str, int] = field(default_factory=dict)  # by reason
    last: int = 0  # the last step that is whole

    def read(self) -> _Rank:
        for one in self.stream.records:
            if isinstance(one, Produced):
                self.produced[one.tensor, one.step] = one
            elif isinstance(one, Applied):
                self.applied.append(one)
            elif isinstance(one, Step):
                self.last = one.step
            elif isinstance(one, Lost):
                self.lost.update((one.tensor, step) for step in one.steps)
                self.forgotten[one.reason] = self.forgotten.get(one.reason, 0) + len(one.steps)
                if one.reason == "discard" and one.step in one.steps:
                    self.dropped.add((one.tensor, one.step))
        return self


class _Places:
    """Some steps."""

    def __init__(self, steps: Iterable[int]) -> None:
        self._steps = sorted(steps)

    def between(self, begin: int, end: int) -> int:
        """Return the number of these steps from `begin` to the one before `end`."""
        return bisect_left(self._steps, end) - bisect_left(self._steps, begin)


class Updates:
    """Checks of one exchange in one world."""

    def __init__(self, streams: Mapping[int, Stream], results: Results) -> None:
        self._results = results
        self._ranks = {rank: _Rank(stream).read() for rank, stream in sorted(streams.items())}
        self._made = next(iter(streams.values())).made

    def check(self) -> None:
        """Make all checks."""
        for rank, one in self._ranks.items():
            self._check_rank(rank, one)
        # With the local exchange, a rank or a site shares gradients.
        for ranks in sorted({one.stream.made.ranks for one in self._ranks.values()}):
            self._check_versions(ranks)

    # --- each rank ------------------------------------------------------------------------------------------------

    def _check_rank(self, rank: int, one: _Rank) -> None:
        results, delay = self._results, self._made.delay
        seen: dict[tuple[str, int], Applied] = {}
        skipped = _Places({step for _, step in one.dropped})  # no updates
        for applied in one.applied:
            tensor, step = applied.tensor, applied.step
            if applied.of <= 0:  # of a state that was loaded
                results.skip(Check.PRODUCED)
                continue
            known = (tensor, applied.of) in one.produced and applied.of <= step
            results.compare(
                Check.PRODUCED, known, rank, tensor, step, f"a gradient of step 1 to {step}", f"step {applied.of}"
            )
            before = seen.get((tensor, applied.of))
            results.compare(
                Check.ONCE, before is None, rank, tensor, step, f"the gradient of step {applied.of} once",
                f"it also in step {before.step}" if before else "",
            )  # fmt: skip
            if (tensor, step) not in one.dropped:
                seen[tensor, applied.of] = applied
            if not applied.drain:
                late = step - applied.of - skipped.between(applied.of, step)
                results.compare(
                    Check.STALE, late <= delay, rank, tensor, step, f"a delay of at most {delay} updates", late
                )
        for reason, count in one.forgotten.items():
            results.lose(reason, count)
        self._check_kept(rank, one, set(seen))

    def _check_kept(self, rank: int, one: _Rank, applied: set[tuple[str, int]]) -> None:
        """Every submitted gradient was applied, is on its owner, or was reported as lost."""
        owned = self._owned_elsewhere(rank)
        missing = [key for key in one.produced if key not in applied and key not in one.lost and key not in owned]
        for tensor, step in missing:
            if one.stream.complete:
                self._results.compare(
                    Check.KEPT, False, rank, tensor, step, "the gradient to be applied, or reported as lost", "neither"
                )
            else:
                self._results.lose("the rank did not end", 1)
        self._results[Check.KEPT].compared += len(one.produced) - len(missing)

    def _owned_elsewhere(self, rank: int) -> set[tuple[str, int]]:
        if self._made.exchange != "split":
            return set()
        others = (one for number, one in self._ranks.items() if number != rank)
        return {(one.tensor, one.of) for other in others for one in other.applied if one.owner not in (None, EVERYONE)}

    # --- all ranks ------------------------------------------------------------------------------------------------

    def _check_versions(self, ranks: tuple[int, ...]) -> None:
        versions: dict[tuple[str, int], dict[int, Applied]] = defaultdict(dict)
        for rank in ranks:
            for applied in self._ranks[rank].applied if rank in self._ranks else ():
                if applied.of > 0:
                    versions[applied.tensor, applied.of].setdefault(rank, applied)
        for (tensor, step), by_rank in sorted(versions.items()):
            self._check_version(ranks, tensor, step, by_rank)

    def _check_version(self, ranks: tuple[int, ...], tensor: str, step: int, by_rank: dict[int, Applied]) -> None:
        (first, reference), *others = by_rank.items()
        shards = reference.owner == EVERYONE
        for rank, other in others if not shards else ():
            same = other.sums.hash == reference.sums.hash
            self._results.compare(
                Check.SAME, same, rank, tensor, other.step, f"the result of rank {first} for step {step}",
                f"another one (checksum {other.sums.hash:08x} and not {reference.sums.hash:08x})",
            )  # fmt: skip
        produced = self._contributions(ranks, tensor, step)
        if produced is None or not self._made.sums:
            self._results.skip(Check.SUM)
            return
        answers = [one.sums for one in by_rank.values()] if shards else [reference.sums]
        self._check_sum(by_rank, tensor, step, produced, answers, whole=not shards or len(by_rank) == len(ranks))

    def _contributions(self, ranks: tuple[int, ...], tensor: str, step: int) -> dict[int, Produced] | None:
        """Return the gradients of a step by rank; None if a rank that did not end may have submitted one."""
        found = {}
        for rank in ranks:
            one = self._ranks.get(rank)
            if one is None or (not one.stream.complete and step > one.last and (tensor, step) not in one.produced):
                return None
            if (tensor, step) in one.produced:
                found[rank] = one.produced[tensor, step]
        return found or None

    def _check_sum(
        self,
        by_rank: dict[int, Applied],
        tensor: str,
        step: int,
        produced: dict[int, Produced],
        answers: list[Sums],
        whole: bool,
    ) -> None:
        results, made = self._results, self._made
        rank, applied = next(iter(by_rank.items()))
        given = [one.sums for one in produced.values()]
        if not whole:
            results.skip(Check.SUM)
            return
        if not all(one.finite for one in (*given, *answers)):
            # NaN and infinity must not vanish. A sum of finite numbers may be infinite.
            kept = all(one.finite for one in given) or not all(one.finite for one in answers)
            results.compare(
                Check.SUM, kept, rank, tensor, applied.step, "NaN or infinity, which was submitted", "finite numbers"
            )
            return
        count, dtype = max(one.count for one in given), next(iter(produced.values())).dtype
        limit = bound(sum(one.size or 0.0 for one in given), count, len(given), dtype, made.rounding)
        wanted, found = total(given), Total().plus(total(answers), made.divisor)
        good = equal(found, wanted, limit)
        results[Check.SUM].sensitive += sensitive(given, limit)
        why = "" if good else self._explanation(tensor, step, produced, found, limit)
        results.compare(
            Check.SUM, good, rank, tensor, applied.step,
            f"the sum of the gradients of step {step} of ranks {listed(produced)}, {wanted.plain:.9g} within "
            f"{limit:.1g}", f"{found.plain:.9g}{why}",
        )  # fmt: skip

    def _explanation(self, tensor: str, step: int, produced: dict[int, Produced], found: Total, limit: float) -> str:
        """Return what the result is, if that can be seen: the sum without a rank, or of another step or tensor."""
        everything = total(one.sums for one in produced.values())
        for rank, one in produced.items():
            if equal(found, everything.plus(one.sums, -1.0), limit):
                return f": the gradient of rank {rank} is missing"
            if equal(found, everything.plus(one.sums), limit):
                return f": the gradient of rank {rank} is in it twice"
        for (other, when), whole in self._totals.items():
            if (other, when) != (tensor, step) and whole.size and equal(found, whole, limit):
                return f": that of step {when}" + (f" of {other}" if other != tensor else "")
        return ""

    @cached_property
    def _totals(self) -> dict[tuple[str, int], Total]:
        found: dict[tuple[str, int], Total] = {}
        for one in self._ranks.values():
            for key, produced in one.produced.items():
                if produced.sums.finite:
                    found[key] = found.get(key, Total()).plus(produced.sums)
        return found
