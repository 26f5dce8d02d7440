"""A cluster leaves nothing behind, however its owner ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.support.cluster import processes_at_switch, wait_until
from paceline.examples.benchmarks.cluster import Cluster, ClusterError, remove_stale
from paceline.examples.benchmarks.cluster.lifetime import start_time

pytestmark = pytest.mark.more

OWNER = """
import sys, time
from paceline.examples.benchmarks.cluster import Cluster
with Cluster(hosts=2, rate="100mbit", latency=sys.argv[1] if sys.argv[1:] else None) as cluster:
    process = cluster.popen(["sh", "-c", "trap '' HUP INT TERM; while true; do sleep 300; done"], host=1)
    print(cluster.tag, process.pid, flush=True)
    time.sleep(300)
"""


def listed(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout


def machine_state() -> tuple[str, str]:
    """Links and mounts of the machine, without iproute2's own /run/netns and other clusters' mounts."""
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if "/run/netns" not in line]
    return listed("ip", "-o", "link"), "\n".join(mounts)


def traces(tag: str) -> list[str]:
    """Remains of a cluster: namespaces, folders, and processes with its name in their command line or environment."""
    found = [line for line in listed("ip", "netns", "list").splitlines() if tag in line]
    found += [str(path) for path in Path("/run").glob(f"{tag}*")]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            text = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if tag.encode() in text:
            found.append(str(process))
    return found


Owner = tuple[subprocess.Popen[str], str, int]


@pytest.fixture(params=[[], ["2ms"]], ids=["no-latency", "2ms"])
def owner(request: pytest.FixtureRequest) -> Iterator[Owner]:
    """A process that owns a cluster, the cluster's tag, and the pid of a stubborn process in it."""
    process = subprocess.Popen([sys.executable, "-c", OWNER, *request.param], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert select.select([process.stdout], [], [], 60)[0], "the owner made no cluster"
        tag, inside = process.stdout.readline().split()
        assert len(traces(tag)) >= 5
        yield process, tag, int(inside)
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()


def guardian_of(tag: str) -> int:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"paceline.examples.benchmarks.cluster.guardian" in arguments and tag.encode() in arguments:
            return int(process.name)
    raise AssertionError("no guardian")


def test_nothing_stays_after_a_normal_end() -> None:
    before = machine_state()
    with Cluster(hosts=2, rate="1gbit") as cluster:
        stubborn = cluster.popen(["sh", "-c", "trap '' TERM; sleep 300"], host=0)
        assert len(traces(cluster.tag)) >= 5
        assert machine_state() == before  # all links and mounts live inside the cluster
    assert stubborn.wait(10) == -signal.SIGKILL
    assert traces(cluster.tag) == []
    assert machine_state() == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_nothing_stays_after_a_signal(owner: Owner, number: signal.Signals) -> None:
    process, tag, inside = owner
    process.send_signal(number)
    process.wait(30)
    wait_until(lambda: not traces(tag), f"{tag} stayed")
    assert start_time(inside) is None


@pytest.mark.parametrize("delay_s", [0.02, 0.1, 0.2, 0.3])
@pytest.mark.parametrize("latency", [[], ["2ms"]], ids=["no-latency", "2ms"])
def test_nothing_stays_when_the_owner_is_killed_while_building(latency: list[str], delay_s: float) -> None:
    process = subprocess.Popen([sys.executable, "-c", OWNER, *latency], stdout=subprocess.DEVNULL)
    prefix = f"paceline-{process.pid}-"
    try:
        wait_until(lambda: bool(list(Path("/run").glob(f"{prefix}*"))), "the owner began no cluster")
        time.sleep(delay_s)
    finally:
        process.kill()
        process.wait(10)
    wait_until(lambda: not traces(prefix), f"{prefix} stayed: {traces(prefix)}")


def test_stale_clusters_are_removed_when_the_guardian_died_too(owner: Owner) -> None:
    process, tag, inside = owner
    assert tag not in remove_stale()  # it is in use
    assert start_time(inside) is not None
    switches = processes_at_switch(tag)
    os.kill(guardian_of(tag), signal.SIGKILL)
    process.kill()
    process.wait(10)
    wait_until(lambda: all(start_time(switch) is None for switch in switches), "the switch outlived its owner")
    assert len(traces(tag)) >= 5
    remove_stale()
    assert traces(tag) == []
    assert start_time(inside) is None


@pytest.mark.parametrize("latency", [None, "2ms"])
def test_the_owner_finishes_the_work_of_a_dead_guardian(latency: str | None) -> None:
    with Cluster(hosts=2, latency=latency) as cluster:
        switches = processes_at_switch(cluster.tag)
        assert len(switches) == (0 if latency is None else 1)
        os.kill(guardian_of(cluster.tag), signal.SIGKILL)
        assert cluster.run(["ssh", "host1", "hostname"], timeout_s=30).stdout == "host1\n"
    assert traces(cluster.tag) == []
    assert all(start_time(switch) is None for switch in switches)


def test_without_a_latency_there_is_a_bridge_and_no_process() -> None:
    with Cluster(hosts=2, latency="0ms") as cluster:
        assert processes_at_switch(cluster.tag) == []
        assert listed("ip", "-n", f"{cluster.tag}-switch", "-o", "link", "show", "type", "bridge").count("\n") == 1


def test_a_forked_child_that_leaves_the_block_takes_nothing_away() -> None:
    with Cluster(hosts=1) as cluster:
        child = os.fork()
        if child == 0:
            cluster.__exit__(None, None, None)
            os._exit(0)
        os.waitpid(child, 0)
        assert cluster.run(["hostname"], timeout_s=30).stdout == "host0\n"
    assert traces(cluster.tag) == []


def test_nothing_stays_after_an_exception_in_the_block_or_while_building() -> None:
    cluster = Cluster(hosts=2)
    with pytest.raises(ZeroDivisionError), cluster:
        raise ZeroDivisionError
    assert cluster.tag
    assert traces(cluster.tag) == []
    cluster = Cluster(hosts=2)
    cluster.names[1] = "not/a/name"  # the second namespace cannot be made
    with pytest.raises(ClusterError, match="netns add"):
        cluster.__enter__()
    assert traces(cluster.tag) == []
