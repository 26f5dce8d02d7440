"""`paceline doctor -H` between two emulated hosts: what works, a firewall, a host that is not there."""

from __future__ import annotations

import json
import sys

import pytest

from paceline.examples.benchmarks.cluster import Cluster

DOCTOR = [sys.executable, "-m", "paceline.launch.cli", "doctor", "--no-runs"]
NO_WAY_IN = """
table ip doctor {
    chain input {
        type filter hook input priority 0
        tcp dport 20000-29999 drop
    }
}
"""


def findings(cluster: Cluster, hosts: str, **environ: str) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit code, and the findings by their subject."""
    done = cluster.run([*DOCTOR, "--json", "-H", hosts], env=environ, timeout_s=120)
    assert done.stdout, done.stderr
    print(cluster.run([*DOCTOR, "-H", hosts], env=environ, timeout_s=120).stdout)
    return done.returncode, {one["what"]: one for one in json.loads(done.stdout)}


def test_hosts_that_reach_each_other(two_hosts: Cluster) -> None:
    code, found = findings(two_hosts, "host0:2,host1:2")
    for what in ("ssh host0", "ssh host1", "clock of host1", "connections from host0", "connections from host1"):
        assert found[what]["severity"] == "ok", found[what]
    assert found["ssh host1"]["found"] == "works; it calls itself host1"
    assert "10." in found["host name host0"]["found"]
    assert code in (0, 1)


@pytest.mark.needs("nft")
def test_a_firewall_between_hosts_is_named(two_hosts: Cluster) -> None:
    made = two_hosts.run(["nft", NO_WAY_IN], host=1, timeout_s=20)
    assert made.returncode == 0, made.stderr
    try:
        code, found = findings(two_hosts, "host0,host1")
    finally:
        two_hosts.run(["nft", "delete table ip doctor"], host=1, timeout_s=20)
    assert code == 3
    wrong = found["host0 to host1"]
    assert wrong["severity"] == "error"
    assert "cannot be reached" in wrong["found"] and "timed out" in wrong["found"]
    assert "firewall" in wrong["remedy"]
    assert found["connections from host1"]["severity"] == "ok"


def test_a_host_that_is_not_there(two_hosts: Cluster) -> None:
    code, found = findings(two_hosts, "host0,host7")
    assert code == 3
    assert found["ssh host7"]["severity"] == "error"
    assert "python3 -V" in found["ssh host7"]["remedy"]
    assert found["ssh host0"]["severity"] == "ok"


def test_an_interface_that_only_other_machines_have(two_hosts: Cluster) -> None:
    code, found = findings(two_hosts, "host0,host1", HOROVOD_GLOO_IFACE="ib0")
    assert code == 3
    assert found["HOROVOD_GLOO_IFACE"]["severity"] == "error"
    assert "eth0, lo" in found["HOROVOD_GLOO_IFACE"]["remedy"]
