"""Clusters for tests. Without root, or without the programs that make one, they are skipped with that reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.errors import UserError
from paceline.examples.benchmarks.cluster import Cluster, tools


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of this folder where no cluster can be made."""
    here = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    if here:
        try:
            tools.check()
        except UserError as error:
            for item in here:
                item.add_marker(pytest.mark.skip(reason=f"{error.problem} {error.remedy}"))


@pytest.fixture(scope="module")
def four_hosts() -> Iterator[Cluster]:
    """Four hosts on links without a limit, shared by the tests of a module."""
    with Cluster(hosts=4) as cluster:
        yield cluster
