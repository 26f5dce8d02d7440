"""Which small gradients travel together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from paceline.torch.names import ParameterNames
from paceline.torch.optimizer import buckets
from paceline.torch.optimizer.bucket import DENSE, Gradient
from paceline.torch.optimizer.buckets import Buckets, digest, fits, neighbours
from paceline.torch.optimizer.reduction import Reduction


def _gradients(*sizes: int | torch.Tensor) -> list[Gradient]:
    tensors = [torch.zeros(size) if isinstance(size, int) else size for size in sizes]
    return [Gradient(torch.nn.Parameter(tensor), f"p{number}") for number, tensor in enumerate(tensors)]


def _formed(gradients: list[Gradient], most_bytes: int = 64) -> list[list[str]]:
    small = {gradient for gradient in gradients if fits(gradient.parameter, most_bytes)}
    return [[gradient.name for gradient in bucket] for bucket in neighbours(gradients, small)]


def test_neighbours_from_the_last_one_on_without_the_large_ones() -> None:
    assert _formed(_gradients(3, 17, 16, 1, 99, 2)) == [["p5", "p3", "p2", "p0"]]


def test_a_bucket_ends_when_a_mebibyte_has_gone_by() -> None:
    large = buckets.SPAN_BYTES // 4 - 3
    assert _formed(_gradients(1, 2, 3, large, 1, 2)) == [["p5", "p4"], ["p2", "p1", "p0"]]
    assert _formed(_gradients(2, large, 1)) == [["p2", "p0"]]
    assert _formed(_gradients(3, large, 1)) == [], "alone, each of them"


def test_one_type_a_bucket_and_none_of_what_cannot_be_a_part() -> None:
    wide = [torch.zeros(2, dtype=torch.float64) for _ in range(2)]
    assert _formed(_gradients(wide[0], 3, wide[1], 4)) == [["p3", "p1"], ["p2", "p0"]]
    for odd in (torch.zeros(4, 3).t(), torch.zeros(2, dtype=torch.bfloat16), torch.zeros(0), torch.zeros(2).to("meta")):
        assert not fits(torch.nn.Parameter(odd), 64), odd
    assert not fits(torch.nn.Parameter(torch.zeros(3)), 0)


def test_ranks_whose_buckets_would_differ_have_other_digests() -> None:
    gradients, longer = _gradients(3, 4, 5), _gradients(3, 4, 6)
    mine = digest(gradients, set(gradients))
    again = _gradients(3, 4, 5)
    assert mine == digest(again, set(again)) > 0
    others = [
        digest(longer, set(longer)),
        digest(gradients[:2], set(gradients[:2])),
        digest(gradients, set(gradients[:2])),
    ]
    assert len({mine, *others}) == 4
    assert digest(gradients, set()) == 0, "nothing is small"


def test_a_drain_takes_out_what_frozen_parameters_are_owed() -> None:
    """Also where a bucket has nothing else left, and other gradients have."""
    weights = [
        torch.nn.Parameter(torch.zeros(2, dtype=dtype)) for dtype in (torch.float32, torch.float32, torch.double)
    ]
    sgd = torch.optim.SGD(weights, lr=1.0)
    names = ParameterNames(sgd.param_groups, [(f"p{number}", weight) for number, weight in enumerate(weights)])
    formed = Buckets(sgd, names, None, sparse_as_dense=False, small_bytes=64, shapes_stay=True)
    formed.update()
    for gradient in formed.all:
        gradient.sparse_dims = DENSE
    formed.form_flat(formed.all)
    formed.all[0].owed = torch.ones(2)
    exchange: Any = SimpleNamespace(
        settings=SimpleNamespace(gradients_travel=True), lag=None, drain=lambda: [({"p2": np.full(2, 3.0)}, 1.0)]
    )
    found = [
        [None if one.grad is None else one.grad.tolist() for one in weights]
        for _ in Reduction(formed, exchange, 1).drain()
    ]
    assert found == [[[1.0, 1.0], None, [3.0, 3.0]]]
    assert formed.all[0].owed is None
