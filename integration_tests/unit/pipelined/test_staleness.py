"""PipeMare's formulas (T1, T2): the numbers of the paper, and what they do to delayed SGD on a quadratic."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.arguments import exchange_asked
from paceline.config import read
from paceline.errors import UserError
from paceline.pipelined.settings import Pipelined
from paceline.pipelined.staleness import moved, rate_factor, retention, trend


def test_rate_grows_from_a_taus_part_to_its_own_value() -> None:
    rates = [0.1 * rate_factor(8, min(step / 100, 1)) for step in (0, 50, 100, 500)]
    assert rates == pytest.approx([0.0125, 0.035355, 0.1, 0.1], rel=1e-4)
    assert np.all(np.diff([rate_factor(8, step / 100) for step in range(101)]) > 0)
    assert rate_factor(1, 0.0) == rate_factor(0.25, 0.0) == 1


def test_retention_is_what_decay_leaves_after_one_update() -> None:
    assert retention(0.135, 10) == pytest.approx(0.8185, abs=1e-4)
    assert retention(0.5, 10) == pytest.approx(0.9330, abs=1e-4)
    assert retention(0.1, 10) == pytest.approx(0.7943, abs=1e-4)
    assert retention(0.1, 1) == 0.1


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
    """Bounds found by the eigenvalues of the recursion; docs/pipelined.md has the table."""
    assert _last(0.96 * alone, tau, 0.9, 0.0) < 1 < _last(1.04 * alone, tau, 0.9, 0.0)
    assert _last(0.96 * corrected, tau, 0.9, 0.135) < 1 < _last(1.04 * corrected, tau, 0.9, 0.135)


def test_settings_say_what_they_refuse() -> None:
    for wrong in ({"annealing_steps": -1}, {"annealing_steps": 1.5}, {"correction": 1.0}, {"correction": -0.1}):
        with pytest.raises(UserError, match=str(next(iter(wrong)))):
            Pipelined(**wrong)
    with pytest.raises(UserError, match=r"PACELINE_PIPELINED_CORRECTION='1'.*below 1"):
        read({"PACELINE_PIPELINED_CORRECTION": "1"})


def test_variables_ask_for_help(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"EXCHANGE": "pipelined", "PIPELINED_K": "3", "PIPELINED_CORRECTION": "0.1"}
    for name, value in chosen.items():
        monkeypatch.setenv(f"PACELINE_{name}", value)
    assert exchange_asked(None) == Pipelined(k=3, correction=0.1)
    assert exchange_asked("pipelined") == Pipelined()
