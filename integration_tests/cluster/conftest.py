"""Clusters for tests. Without root, or without the programs that make one, they are skipped with that reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paceline.errors import UserError
from paceline.launch.cluster import Cluster, tools


@pytest.fixture(scope="session", autouse=True)
def _can_make_clusters() -> None:
    try:
        tools.check()
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def four_hosts() -> Iterator[Cluster]:
    """Four hosts on links without a limit, shared by the tests of a module."""
    with Cluster(hosts=4) as cluster:
        yield cluster
