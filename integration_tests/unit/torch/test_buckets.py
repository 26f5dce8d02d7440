"""Which small gradients travel together."""

from __future__ import annotations

import torch

from paceline.torch.optimizer import buckets
from paceline.torch.optimizer.bucket import Gradient
from paceline.torch.optimizer.buckets import digest, fits, neighbours


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
