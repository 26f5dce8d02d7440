"""Corrections of late gradients: T1, T2, graded momentum, look-ahead."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from paceline.stages import corrections
from paceline.stages.corrections import correction_weight, delta_decay, learning_rate_factor


def test_learning_rate_is_annealed() -> None:
    """papers.md 5.6, item 3."""
    rates = [0.1 * learning_rate_factor(8, update, 100) for update in range(201)]
    assert rates[0] == pytest.approx(0.0125)
    assert rates[50] == pytest.approx(0.035355, abs=1e-6)
    assert rates[100:] == [0.1] * 101
    assert all(earlier <= later for earlier, later in pairwise(rates))
    assert learning_rate_factor(8, 0, 0) == 1.0, "not annealed"
    for tau in (0.0, 0.25, 1.0):  # it is never raised
        assert {learning_rate_factor(tau, update, 100) for update in (0, 1, 50, 100, 1000)} == {1.0}


@pytest.mark.parametrize(
    ("correction", "expected"), [(corrections.CORRECTION, 0.8187), (0.135, 0.8185), (0.5, 0.9330), (0.1, 0.7943)]
)
def test_decay_of_delta(correction: float, expected: float) -> None:
    assert delta_decay(correction, 10, 0) == pytest.approx(expected, abs=5e-5)
    assert delta_decay(correction, 12.5, 2.5) == delta_decay(correction, 10, 0)


@pytest.mark.parametrize("taus", [(3.0, 0.0), (7.0, 3.0), (0.75, 0.0)])
def test_constant_drift_is_found(taus: tuple[float, float]) -> None:
    """papers.md 5.6, item 4: w = c t gives delta -> c with a bias of gamma^t, and the weights of the forward pass."""
    forward, backward = taus
    gamma = delta_decay(0.5, forward, backward)
    slope, delta = 0.3, 0.0
    for update in range(1, 121):
        delta = gamma * delta + (1 - gamma) * slope
        assert slope - delta == pytest.approx(slope * gamma**update)
    assert delta == pytest.approx(slope)
    used = slope * (120 - backward) - correction_weight(forward, backward) * delta
    assert used == pytest.approx(slope * (120 - forward))


@pytest.mark.parametrize("correction", [0.0, 1.0, -1.0, math.nan])
def test_correction_out_of_range_is_refused(correction: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        delta_decay(correction, 3, 0)
    # papers.md 5.6, item 5: no correction where both passes are equally late.
    assert all(correction_weight(tau, tau) == delta_decay(0.5, tau, tau) == 0 for tau in (0.0, 0.75, 4.0))


def test_momentum_is_graded() -> None:
    assert [corrections.graded_momentum(0.9, stage, 3) for stage in range(3)] == pytest.approx([0.96, 0.93, 0.9])
    assert corrections.graded_momentum(0.9, 0, 1) == 0.9
    assert corrections.graded_momentum(0.5, 0, 2, highest=0.7) == pytest.approx(0.6)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("updates", [0, 1, 2, 7])
def test_look_ahead_is_what_momentum_alone_does(momentum: float, updates: int) -> None:
    weight, change = 0.0, 1.0
    for _ in range(updates):
        change *= momentum
        weight += change
    assert corrections.look_ahead(momentum, updates) == pytest.approx(weight)
