"""Checksums are linear, and show what a hash or a plain sum does not."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.history.checks.adding import Total, bound, equal, sensitive, total
from paceline.history.sums import PERIOD, array_of, sums_of

COUNT = 3 * PERIOD + 17


def _some(seed: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(COUNT).astype(dtype)


@pytest.mark.parametrize(("dtype", "ranks"), [("float64", 3), ("float32", 2), ("float32", 64), ("float16", 4)])
def test_sums_of_a_mean_are_within_the_bound(dtype: str, ranks: int) -> None:
    many = [_some(rank, dtype) for rank in range(ranks)]
    mean = many[0]
    for one in many[1:]:
        mean = (mean + one).astype(dtype)
    mean = (mean / ranks).astype(dtype)
    given = [sums_of(one) for one in many]
    limit = bound(sum(one.size or 0 for one in given), COUNT, ranks, dtype, 0.0)
    found = Total().plus(sums_of(mean), ranks)
    assert equal(found, total(given), limit)
    if dtype != "float16":
        assert sensitive(given, limit)
        for lost in given:
            assert not equal(found, total(given).plus(lost, -1.0), limit)


def test_the_bound_is_one_of_errors_and_not_of_chance() -> None:
    """All elements are rounded in the same direction."""
    ranks = 7
    one = np.full(COUNT, 0.1, np.float32)
    mean = one.copy()
    for _ in range(ranks - 1):
        mean += one
    limit = bound(ranks * (sums_of(one).size or 0), COUNT, ranks, "float32", 0.0)
    difference = abs((sums_of(mean).plain or 0) - ranks * (sums_of(one).plain or 0))
    assert 0 < difference <= limit < 20 * difference


def test_elements_in_the_wrong_place_are_found() -> None:
    array = _some(1)
    moved = np.roll(array, 1)
    one, other = sums_of(array), sums_of(moved)
    assert one.plain == pytest.approx(other.plain, abs=1e-9)
    assert abs((one.placed or 0) - (other.placed or 0)) > 1


def test_sums_of_parts_add_up() -> None:
    array = _some(2)
    parts = [sums_of(array[begin:end], begin) for begin, end in ((0, 500), (500, 1999), (1999, COUNT))]
    assert equal(total(parts), sums_of(array), 1e-9)


def test_values_that_are_not_finite_have_no_sums() -> None:
    for bad in (np.nan, np.inf, -np.inf):
        array = _some(3)
        array[7] = bad
        assert not sums_of(array).finite
        assert sums_of(array).count == COUNT
    assert sums_of(np.zeros((0, 3), np.float32)).count == 0


def test_arrays_of_tensors() -> None:
    import torch

    tensor = torch.arange(4.0, dtype=torch.bfloat16).reshape(2, 2)
    assert array_of(tensor).dtype == np.float32 and array_of(tensor).tolist() == [[0.0, 1.0], [2.0, 3.0]]
    sparse = torch.sparse_coo_tensor([[0, 2, 2]], [1.0, 2.0, 4.0], (3,))
    assert array_of(sparse).tolist() == [1.0, 6.0]
    assert array_of(np.float64(3.0)).tolist() == 3.0
