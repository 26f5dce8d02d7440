"""Checks of weights and of averages of models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from paceline.history.checks.adding import Total, bound, equal
from paceline.history.checks.reading import Stream
from paceline.history.checks.results import Check, Results, listed
from paceline.history.records import Averaged, Put, Weights


def check_weights(streams: Mapping[int, Stream], results: Results) -> None:
    """Compare the weights that all ranks must have alike, by their hashes."""
    known: dict[tuple[int, int, bool, int], dict[int, tuple[int, int]]] = defaultdict(dict)
    for rank, stream in sorted(streams.items()):
        for one in stream.records:
            if isinstance(one, Weights):
                for index, hashed in one.hashes.items():
                    step = 0 if one.average else one.step
                    known[step, one.average, one.drain, index][rank] = hashed, one.step
    for (*_, index), by_rank in sorted(known.items()):
        (first, (reference, _)), *others = by_rank.items()
        for rank, (hashed, step) in others:
            results.compare(
                Check.WEIGHTS, hashed == reference, rank, f"weight {index}", step, f"the weights of rank {first}",
                f"others (checksum {hashed:08x} and not {reference:08x})",
            )  # fmt: skip


def check_means(streams: Mapping[int, Stream], results: Results) -> None:
    """Compare averages with what ranks have submitted to them, and between ranks."""
    made = next(iter(streams.values())).made
    put: dict[tuple[str, int, str], dict[int, Put]] = defaultdict(dict)
    means: dict[tuple[str, int, str], dict[int, Averaged]] = defaultdict(dict)
    for rank, stream in sorted(streams.items()):
        for one in stream.records:
            if isinstance(one, Put):
                put[one.kind, one.number, one.tensor][rank] = one
            elif isinstance(one, Averaged):
                means[one.kind, one.number, one.tensor][rank] = one
    for key, by_rank in sorted(means.items()):
        _check_mean(key, by_rank, put[key], made.averaged, results)


def _check_mean(
    key: tuple[str, int, str],
    by_rank: dict[int, Averaged],
    put: dict[int, Put],
    averaged: tuple[int, ...],
    results: Results,
) -> None:
    kind, number, tensor = key
    name = f"weight {tensor}" + (f" ({kind})" if kind else "")
    (first, reference), *others = by_rank.items()
    for rank, other in others:
        results.compare(
            Check.SAME, other.sums.hash == reference.sums.hash, rank, name, 0,
            f"the mean of rank {first} in average {number}", "another one",
        )  # fmt: skip
    values = list(put.values())
    known = set(put) == set(averaged) and all(one.exact and one.sums.finite for one in values)
    if not known or not reference.sums.finite:
        results.skip(Check.MEAN)
        return
    works = [1.0 if one.work is None else one.work for one in values]
    wanted = Total()
    for one, work in zip(values, works, strict=True):
        wanted = wanted.plus(one.sums, work)
    found = Total().plus(reference.sums, sum(works))
    limit = bound(wanted.size, reference.sums.count, len(values), values[0].dtype, 0.0)
    results.compare(
        Check.MEAN, equal(found, wanted, limit), first, name, 0,
        f"the mean of ranks {listed(put)} in average {number}: sum {wanted.plain:.9g} within {limit:.1g}",
        f"{found.plain:.9g}",
    )  # fmt: skip
