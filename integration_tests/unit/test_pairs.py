"""Pairwise choices have every pair that the whole has, and are few."""

from __future__ import annotations

from itertools import product

import pytest

from integration_tests.support.matrix_table import POSSIBLE, ROWS
from integration_tests.support.pairs import by_pairs, cover, pairs_of

FIVES = list(product(range(5), repeat=3))
HOLES = [row for row in product(range(4), range(3), range(3), range(2)) if sum(row) % 5 and row[:2] != (3, 2)]


@pytest.mark.parametrize(("rows", "most"), [(FIVES, 35), (HOLES, 18), (POSSIBLE, 360)])
def test_a_cover_has_all_pairs(rows: list[tuple[object, ...]], most: int) -> None:
    chosen = cover(rows)
    assert set.union(*map(pairs_of, chosen)) == set.union(*map(pairs_of, rows))
    assert len(chosen) == len(set(chosen)) <= most
    assert chosen == [row for row in rows if row in chosen] == cover(rows)


def test_the_matrix_of_torch_is_a_cover() -> None:
    assert set(ROWS) == set(cover(POSSIBLE))


def test_the_others_are_for_test_more() -> None:
    cases = by_pairs("ab", "cd", "ef")
    few = [case for case in cases if isinstance(case, tuple) and not hasattr(case, "marks")]
    assert (len(cases), len(few)) == (8, 4)
    assert {mark.name for case in cases if hasattr(case, "marks") for mark in case.marks} == {"more"}
