"""Lists of hosts, as schedulers write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.launch.rank import hostlists


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node1", ["node1"]),
        ("node[08-10,12]", ["node08", "node09", "node10", "node12"]),
        ("gpu[1,3]-ib,login", ["gpu1-ib", "gpu3-ib", "login"]),
        ("r[1-2]n[0-1]", ["r1n0", "r1n1", "r2n0", "r2n1"]),
        ("a,b", ["a", "b"]),
        ("", []),
        ("node[00000-99999]", [f"node{number:05}" for number in range(hostlists.MOST)]),
    ],
)
def test_compact_lists_of_slurm(text: str, hosts: list[str]) -> None:
    assert hostlists.expand(text) == hosts


@pytest.mark.parametrize(
    ("environ", "hosts"),
    [
        ({"LSB_MCPU_HOSTS": "batch2 1 h22n07 42 h22n08 42"}, ["h22n07", "h22n08", "batch2"]),
        ({"LSB_MCPU_HOSTS": "a 2 b 2"}, ["a", "b"]),
        ({"LSB_MCPU_HOSTS": "a 1 b 1"}, ["a", "b"]),
        ({"LSB_MCPU_HOSTS": "a 1"}, ["a"]),
        ({"LSB_HOSTS": "a a b"}, ["a", "b"]),
        ({}, []),
    ],
)
def test_hosts_of_lsf(environ: dict[str, str], hosts: list[str]) -> None:
    assert hostlists.lsf(environ) == hosts


def test_hosts_of_pbs(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("a\na\nb\n")
    assert hostlists.pbs({"PBS_NODEFILE": str(tmp_path / "nodes")}) == ["a", "b"]
    assert hostlists.pbs({"PBS_NODEFILE": str(tmp_path / "elsewhere")}) == []


def test_open_mpi_is_looked_for_on_the_batch_systems_hosts_and_where_mpirun_is() -> None:
    uri = {"OMPI_MCA_orte_hnp_uri": "2383740928.0;tcp://10.0.0.1,192.168.1.1:39711"}
    assert hostlists.open_mpi(uri) == ["10.0.0.1", "192.168.1.1"]
    assert hostlists.open_mpi({**uri, "SLURM_JOB_NODELIST": "n[1-2]"}) == ["n1", "n2", "10.0.0.1", "192.168.1.1"]
