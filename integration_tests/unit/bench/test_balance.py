"""The rate of links at which communication takes a multiple of compute."""

from __future__ import annotations

import pytest

from paceline.examples.benchmarks.cluster.rates import parse_rate
from paceline.examples.benchmarks.harness import balance
from paceline.examples.benchmarks.networks.models import find


@pytest.mark.parametrize(
    ("name", "ranks", "share", "rate"),
    [
        # 4 bytes x 511,131 parameters x 2 (p - 1) / p x 8 bits in 450 ms x share
        ("resnet50-x0.02", 4, 1.0, "54.5mbit"),
        ("resnet50-x0.02", 4, 0.3, "182mbit"),
        ("resnet50-x0.02", 2, 1.0, "36.3mbit"),
        ("vgg16", 8, 1.0, "4700mbit"),
    ],
)
def test_a_ring_carries_the_gradients_in_that_multiple_of_compute(
    name: str, ranks: int, share: float, rate: str
) -> None:
    found = balance.find(find(name), ranks, share)
    assert found.rate == rate and parse_rate(rate) == found.bit_s
    assert found.link_bytes == 2 * (ranks - 1) / ranks * find(name).gradient_bytes
    assert 8 * found.link_bytes / found.bit_s == pytest.approx(share * found.compute_s, rel=0.005)


def test_the_default_model_gets_a_rate_that_the_processor_can_drive() -> None:
    for share in (0.3, 1.0, 2.0):
        assert balance.find(find("resnet50-x0.02"), 4, share).clean
    assert not balance.find(find("resnet20"), 4, 1.0).clean
