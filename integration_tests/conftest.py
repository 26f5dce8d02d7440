"""Test-wide settings: every test has a time limit, because a hang is a failure."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration_tests.support.ranks import end_kept_worlds


@pytest.fixture(scope="session", autouse=True)
def _end_worlds() -> Iterator[None]:
    yield
    end_kept_worlds()
