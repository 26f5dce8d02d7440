"""The events of integration_tests/fuzz.py without a sanitizer: some worlds of each, chosen at random."""

from __future__ import annotations

import random

import pytest

from integration_tests.fuzz import chosen_world
from integration_tests.support import fuzz_events
from integration_tests.support.ranks import run_ranks


@pytest.mark.more
@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("event", fuzz_events.EVENTS)
def test_event(event: str, seed: int) -> None:
    size, variables = chosen_world(random.Random(seed))
    variables["HOROVOD_GLOO_TIMEOUT_SECONDS"] = "10"
    run_ranks(fuzz_events.EVENTS[event], max(size, 3), seed, env=variables, timeout_s=180, fresh=True)
