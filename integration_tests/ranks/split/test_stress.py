"""The split exchange with random delays, gradients, reads, plans and other operations: weights equal one process's."""

from __future__ import annotations

import pytest

from integration_tests.support.arming import ARMED
from integration_tests.support.more import more
from integration_tests.support.ranks import run_ranks
from integration_tests.support.split_stress import torch_steps


@pytest.mark.timeout(1000)
@pytest.mark.parametrize(
    ("size", "steps"),
    [(3, 150), more(2, 150), more(5, 150), *(pytest.param(size, 2000, marks=pytest.mark.soak) for size in (2, 3, 4))],
)
def test_weights_are_exact_whatever_comes(size: int, steps: int) -> None:
    run_ranks(torch_steps, size, steps, 7, steps // 10, timeout_s=900, env=ARMED)
