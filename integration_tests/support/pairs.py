"""Pairwise testing: few combinations of parameters that have every pair of values which occurs in all of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any, TypeVar

from integration_tests.support.more import more

Row = TypeVar("Row", bound=tuple[Any, ...])


def pairs_of(row: tuple[Any, ...]) -> set[tuple[Any, ...]]:
    """All pairs of values of two parameters, with the parameters' places."""
    return set(combinations(enumerate(row), 2))


def cover(rows: Sequence[Row]) -> list[Row]:
    """Some of `rows`, in their order, that have all pairs of `rows`: greedy, those with the most new pairs first.

    The last parameter's values take turns. `rows` need not be a product: generators such as allpairspy lose pairs where
    some combinations are impossible.
    """
    numbers = [{value: number for number, value in enumerate(dict.fromkeys(column))} for column in zip(*rows)]

    def turn(row: Row) -> int:
        return sum(number[value] for number, value in zip(numbers, row)) % len(numbers[-1])

    in_turn, chosen = sorted(rows, key=turn), set()
    left = set().union(*(pairs_of(row) for row in rows))
    for least in range(len(pairs_of(rows[0])), 0, -1):
        for row in in_turn:
            if len(pairs_of(row) & left) >= least:
                chosen.add(row)
                left -= pairs_of(row)
    return [row for row in rows if row in chosen]


def by_pairs(*values: Sequence[Any]) -> list[Any]:
    """Cases of the product of `values`: `make test` runs a cover, `make test-more` the others."""
    rows = list(product(*values))
    chosen = cover(rows)
    return [row if row in chosen else more(*row) for row in rows]
