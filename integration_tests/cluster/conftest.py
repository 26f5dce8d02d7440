"""Clusters for tests. Without root they are skipped; with root and a missing program they fail."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from paceline.errors import UserError
from paceline.launch.cluster import Cluster, tools


@pytest.fixture(scope="session", autouse=True)
def _needs_root() -> None:
    try:
        tools.check()
    except UserError as error:
        if os.geteuid() != 0:
            pytest.skip(str(error))
        raise


@pytest.fixture(scope="module")
def four_hosts() -> Iterator[Cluster]:
    """Four hosts on links without a limit, shared by the tests of a module."""
    with Cluster(hosts=4) as cluster:
        yield cluster
