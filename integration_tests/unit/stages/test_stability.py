"""Stability of training with late gradients: Lemmas 1 to 3 of PipeMare, and its correction T2."""

from __future__ import annotations

from collections import deque

import pytest

from paceline.stages import stability

# Largest alpha lambda.
BOUNDS = {0: 2.0, 1: 1.0, 2: 0.618034, 5: 0.284630, 10: 0.149460, 20: 0.076605, 50: 0.031104, 107: 0.014612}


INFINITE = 1e9


def weight_after(
    updates: int,
    alpha: float,
    forward: int,
    backward: int = 0,
    curvature: float = 1.0,
    delta_curvature: float = 0.0,
    gamma: float | None = None,
    momentum: float = 0.0,
) -> float:
    """|w| after SGD, written down plainly: gradients at weights of `forward` updates ago, and where they depend on the
    difference to those of the backward pass, of `backward` ago, these corrected by T2 if there is a gamma.
    """
    weights = deque([1.0] * (max(forward, backward) + 1), maxlen=max(forward, backward) + 1)
    change = delta = 0.0
    for _ in range(updates):
        late = weights[-1 - forward]
        used = weights[-1 - backward]
        if gamma is not None:
            used -= (forward - backward) * delta
        change = momentum * change - alpha * ((curvature + delta_curvature) * late - delta_curvature * used)
        if gamma is not None:
            delta = gamma * delta + (1 - gamma) * change
        weights.append(weights[-1] + change)
        if abs(weights[-1]) > INFINITE:
            return float("inf")
    return abs(weights[-1])


@pytest.mark.parametrize(("tau", "expected"), BOUNDS.items())
def test_bound_is_where_the_polynomial_becomes_unstable(tau: int, expected: float) -> None:
    assert stability.bound(tau) == pytest.approx(expected, abs=1e-6)
    assert stability.bound(tau, curvature=4.0) == pytest.approx(expected / 4, abs=1e-6)
    if tau <= 20:
        found = stability.first_unstable(lambda alpha: stability.of_delay(tau, alpha))
        assert found == pytest.approx(stability.bound(tau), rel=1e-6)


@pytest.mark.parametrize("tau", [1, 5, 10])
@pytest.mark.parametrize("curvature", [1.0, 3.0])
def test_training_settles_below_the_bound_and_not_above(tau: int, curvature: float) -> None:
    """papers.md 5.6, item 2."""
    bound = stability.bound(tau, curvature)
    assert weight_after(20_000, 0.98 * bound, tau, curvature=curvature) < 1e-11
    assert weight_after(20_000, 1.02 * bound, tau, curvature=curvature) == float("inf")


@pytest.mark.parametrize(("momentum", "expected"), [(0.1, 0.13329), (0.5, 0.06962), (0.9, 0.01139)])
def test_momentum_lowers_the_bound(momentum: float, expected: float) -> None:
    """Lemma 3: some learning rate up to twice the bound without momentum is unstable."""
    found = stability.first_unstable(lambda alpha: stability.of_delay(10, alpha, momentum=momentum))
    assert found == pytest.approx(expected, abs=1e-5)
    assert found < 2 * stability.bound(10)
    assert weight_after(60_000, 0.98 * found, 10, momentum=momentum) < 1e-9
    assert weight_after(60_000, 1.02 * found, 10, momentum=momentum) == float("inf")


# (tau_forward, tau_backward, Delta, gamma or None for no correction, first unstable learning rate); lambda = 1.
DISCREPANCIES = [
    (10, 0, 1, None, 0.05928),
    (10, 0, 1, "best", 0.13130),
    (10, 0, 5, None, 0.01756),
    (10, 0, 5, "best", 0.09762),
    (10, 0, 5, 0.1 ** (1 / 10), 0.11916),
    (10, 0, 5, 0.5 ** (1 / 10), 0.02900),
    (10, 0, 10, None, 0.00935),
    (10, 0, 10, "best", 0.07955),
    (20, 0, 5, None, 0.00880),
    (20, 0, 5, "best", 0.04901),
    (10, 6, 5, None, 0.03807),
    (10, 6, 5, "best", 0.10505),
]


@pytest.mark.parametrize(("forward", "backward", "delta", "gamma", "expected"), DISCREPANCIES)
def test_correction_allows_larger_learning_rates(
    forward: int, backward: int, delta: int, gamma: float | str | None, expected: float
) -> None:
    """papers.md 5.6, item 6; best: gamma = 1 - 2/(tau_forward - tau_backward + 1)."""
    decay = 1 - 2 / (forward - backward + 1) if isinstance(gamma, str) else gamma
    found = stability.first_unstable(
        lambda alpha: stability.of_discrepancy(forward, backward, alpha, 1.0, delta, decay)
    )
    assert found == pytest.approx(expected, abs=1e-5)
    for share, settles in ((0.98, True), (1.02, False)):
        weight = weight_after(60_000, share * found, forward, backward, 1.0, delta, decay)
        assert weight < 1e-6 if settles else weight == float("inf")
    if gamma is None:  # Lemma 2
        assert found <= min(2 / (delta * (forward - backward)), stability.bound(forward))


def test_without_late_passes_there_is_no_discrepancy_and_what_is_always_stable_has_no_bound() -> None:
    """Delta has no effect where both passes have the same weights: Lemma 2 is Lemma 1."""
    found = stability.first_unstable(lambda alpha: stability.of_discrepancy(5, 5, alpha, 1.0, 7.0))
    assert found == pytest.approx(stability.bound(5), rel=1e-6)
    assert stability.first_unstable(lambda alpha: stability.of_delay(3, alpha), most=0.1) == float("inf")
