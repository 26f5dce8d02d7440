"""Clusters for tests. Without root, or without the programs that make one, they are skipped with that reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.support.slurm import Slurm
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


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[Cluster]:
    """The same, of two hosts."""
    with Cluster(hosts=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def slurm(two_hosts: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A real Slurm on two hosts."""
    with Slurm(two_hosts, tmp_path_factory.mktemp("slurm")) as slurm:
        yield slurm
