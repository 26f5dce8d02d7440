"""Late gradients: corrections (T1, T2, graded momentum, look-ahead), stability of training, as in PipeMare."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from paceline.arguments import exchange_asked
from paceline.errors import UserError
from paceline.examples.reproduction.pipemare import BOUNDS, DISCREPANCIES, first_unstable_rate, gamma
from paceline.examples.reproduction.stability import first_unstable, of_delay, of_discrepancy
from paceline.pipelined.settings import Pipelined
from paceline.pipelined.staleness import moved, rate_factor, retention, trend
from paceline.stages import corrections, stability
from paceline.stages.corrections import correction_weight, delta_decay, learning_rate_factor


def of_stages(tau: float, progress: float) -> float:
    return learning_rate_factor(tau, round(100 * progress), 100)


@pytest.mark.parametrize("factor", [of_stages, rate_factor])
def test_learning_rate_is_annealed(factor: Callable[[float, float], float]) -> None:
    """papers.md 5.6, item 3, for stages and for delayed exchanges."""
    rates = [0.1 * factor(8, min(step / 100, 1)) for step in range(201)]
    assert rates[0] == pytest.approx(0.0125)
    assert rates[50] == pytest.approx(0.035355, abs=1e-6)
    assert rates[100:] == [0.1] * 101
    assert all(earlier < later for earlier, later in pairwise(rates[:101]))
    for tau in (0.0, 0.25, 1.0):  # it is never raised
        assert {factor(tau, progress) for progress in (0, 0.01, 0.5, 1)} == {1.0}
    assert learning_rate_factor(8, 0, 0) == 1.0, "not annealed"


@pytest.mark.parametrize(
    ("correction", "expected"), [(corrections.CORRECTION, 0.8187), (0.135, 0.8185), (0.5, 0.9330), (0.1, 0.7943)]
)
def test_decay_of_delta(correction: float, expected: float) -> None:
    assert delta_decay(correction, 10, 0) == retention(correction, 10) == pytest.approx(expected, abs=5e-5)
    assert delta_decay(correction, 12.5, 2.5) == delta_decay(correction, 10, 0)
    assert retention(correction, 1) == correction


def test_momentum_is_graded() -> None:
    assert [corrections.graded_momentum(0.9, stage, 3) for stage in range(3)] == pytest.approx([0.96, 0.93, 0.9])
    assert corrections.graded_momentum(0.9, 0, 1) == 0.9
    assert corrections.graded_momentum(0.5, 0, 2, highest=0.7) == pytest.approx(0.6)


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


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("updates", [0, 1, 2, 7])
def test_look_ahead_is_what_momentum_alone_does(momentum: float, updates: int) -> None:
    weight, change = 0.0, 1.0
    for _ in range(updates):
        change *= momentum
        weight += change
    assert corrections.look_ahead(momentum, updates) == pytest.approx(weight)


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
    """Return |w| after SGD with stale gradients, computed directly.

    Gradients use weights of `forward` updates ago, and with `delta_curvature` also weights of `backward` updates ago,
    which are corrected by T2 if `gamma` is given.
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
        found = first_unstable(lambda alpha: of_delay(tau, alpha))
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
    found = first_unstable(lambda alpha: of_delay(10, alpha, momentum=momentum))
    assert found == pytest.approx(expected, abs=1e-5)
    assert found < 2 * stability.bound(10)
    assert weight_after(60_000, 0.98 * found, 10, momentum=momentum) < 1e-9
    assert weight_after(60_000, 1.02 * found, 10, momentum=momentum) == float("inf")


@pytest.mark.parametrize(("forward", "backward", "delta", "correction"), DISCREPANCIES)
def test_correction_allows_larger_learning_rates(
    forward: int, backward: int, delta: int, correction: float | str | None
) -> None:
    found = first_unstable_rate(forward, backward, delta, correction)
    decay = gamma(forward, backward, correction)
    for share, settles in ((0.98, True), (1.02, False)):
        weight = weight_after(60_000, share * found, forward, backward, 1.0, delta, decay)
        assert weight < 1e-6 if settles else weight == float("inf")
    if correction is None:  # Lemma 2
        assert found <= min(2 / (delta * (forward - backward)), stability.bound(forward))


def test_without_late_passes_there_is_no_discrepancy_and_what_is_always_stable_has_no_bound() -> None:
    """Delta has no effect where both passes have the same weights: Lemma 2 is Lemma 1."""
    found = first_unstable(lambda alpha: of_discrepancy(5, 5, alpha, 1.0, 7.0))
    assert found == pytest.approx(stability.bound(5), rel=1e-6)
    assert first_unstable(lambda alpha: of_delay(3, alpha), most=0.1) == float("inf")


def test_constant_drift_is_corrected_exactly() -> None:
    """PipeMare, section T2: w = c t. The correction finds the weights of another time, earlier or later."""
    drift, gamma = np.array([0.5, -2.0, 3.0]), retention(0.135, 10)
    delta = np.zeros(3)
    for _ in range(200):
        delta = trend(delta, drift, gamma)
    assert delta == pytest.approx(drift * (1 - gamma**200))
    assert moved(drift * 200, delta, -10) == pytest.approx(drift * 190)
    assert moved(drift * 200, delta, 1) == pytest.approx(drift * 201)
    assert moved(drift * 200, delta, 0).tolist() == (drift * 200).tolist()  # no delay, no correction


def _last(alpha: float, tau: int, momentum: float, decay: float) -> float:
    """|w| after a long run of SGD on w^2 / 2 whose gradients are tau updates old, corrected with `decay` (0: not)."""
    w, velocity, delta, gamma = 1.0, 0.0, 0.0, retention(decay, tau)
    gradients = [0.0] * tau
    for _ in range(3000):
        gradients.append(moved(w, delta, tau) if decay else w)
        velocity = momentum * velocity + gradients.pop(0)
        before, w = w, w - alpha * velocity
        delta = trend(delta, w - before, gamma)
        if abs(w) > 1e6:
            return math.inf
    return abs(w)


@pytest.mark.parametrize(("tau", "alone", "corrected"), [(1, 0.1005, 0.2419), (2, 0.0515, 0.0955), (3, 0.0345, 0.0535)])
def test_correction_makes_sgd_with_momentum_stable_at_larger_rates(tau: int, alone: float, corrected: float) -> None:
    """Bounds found by the eigenvalues of the recursion; docs/methods/pipelined.md has the table."""
    assert _last(0.96 * alone, tau, 0.9, 0.0) < 1 < _last(1.04 * alone, tau, 0.9, 0.0)
    assert _last(0.96 * corrected, tau, 0.9, 0.135) < 1 < _last(1.04 * corrected, tau, 0.9, 0.135)


def test_settings_of_pipelined_are_checked_and_variables_choose_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ({"annealing_steps": -1}, {"annealing_steps": 1.5}, {"correction": 1.0}, {"correction": -0.1}):
        with pytest.raises(UserError, match=str(next(iter(wrong)))):
            Pipelined(**wrong)
    # Variables request corrections.
    chosen = {"EXCHANGE": "pipelined", "PIPELINED_K": "3", "PIPELINED_CORRECTION": "0.1"}
    for name, value in chosen.items():
        monkeypatch.setenv(f"PACELINE_{name}", value)
    assert exchange_asked(None) == Pipelined(k=3, correction=0.1)
    assert exchange_asked("pipelined") == Pipelined()
