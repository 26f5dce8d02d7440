"""A network with latency: every frame is delayed, none overtakes another, and dropped frames are reported."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from integration_tests.support.cluster import processes_at_switch
from paceline.examples.benchmarks.cluster import Cluster, ClusterError
from paceline.examples.benchmarks.cluster.switch import SOCKET_BUFFER_BYTES

pytestmark = pytest.mark.more

LATENCY_MS = 2.0

ANSWER = """
import socket, sys
server = socket.create_server((sys.argv[1], 5001))
print("ready", flush=True)
while True:
    peer = server.accept()[0]
    while text := peer.recv(1 << 16):
        peer.sendall(text)
"""
# Milliseconds of each of ten answers.
ASK = """
import socket, sys, time
peer = socket.create_connection((sys.argv[1], 5001), 20)
for _ in range(10):
    begin = time.perf_counter()
    peer.sendall(b"x")
    assert peer.recv(1) == b"x"
    print(1e3 * (time.perf_counter() - begin))
"""
COUNT = """
import socket, sys
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
receiver.bind((sys.argv[1], 5002))
receiver.settimeout(20)
print("ready", flush=True)
while (text := receiver.recv(1 << 16)[:8]) != b"end":
    print(int(text))
"""
FLOOD = """
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect((sys.argv[1], 5002))
for number in range(int(sys.argv[2])):
    sender.send(b"%7d " % number + bytes(int(sys.argv[3])))
for _ in range(5):
    sender.send(b"end")
"""


@pytest.fixture(scope="module")
def late() -> Iterator[Cluster]:
    with Cluster(hosts=3, rate="200mbit", latency=f"{LATENCY_MS:g}ms") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def answering(late: Cluster) -> Iterator[Cluster]:
    """The same cluster; host1 and host2 echo received data."""
    servers = [started(late, ANSWER, host) for host in (1, 2)]
    yield late
    for server in servers:
        end(server)


def started(cluster: Cluster, script: str, host: int) -> subprocess.Popen[str]:
    """A script that runs on a host and has reported that it is ready."""
    argv = [sys.executable, "-c", script, cluster.addresses[host]]
    process = cluster.popen(argv, host, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=10)


def printed(cluster: Cluster, script: str, *arguments: str, host: int = 0) -> list[str]:
    done = cluster.run([sys.executable, "-c", script, *arguments], host=host, timeout_s=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(("asking", "asked"), [(0, 1), (0, 2), (1, 2), (2, 1)])
def test_every_round_trip_takes_the_latency_twice(answering: Cluster, asking: int, asked: int) -> None:
    times_ms = [float(text) for text in printed(answering, ASK, answering.addresses[asked], host=asking)]
    assert len(times_ms) == 10
    assert min(times_ms) >= 2 * LATENCY_MS


def test_loopback_of_a_host_does_not_cross_the_network(answering: Cluster) -> None:
    before = answering.counters()[1]
    assert len(printed(answering, ASK, answering.addresses[1], host=1)) == 10
    # A last packet of the previous connection may arrive now; ten requests would be ten packets.
    assert answering.counters()[1].sent_packets - before.sent_packets < 10


def test_what_is_sent_arrives_as_it_was(late: Cluster) -> None:
    """Megabytes over one connection, sent as large packets of TCP offload."""
    content = bytes(range(256)) * 40_000
    script = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 40_000)"
    command = f"{sys.executable} -c '{script}' | ssh host2 sha256sum"
    done = late.run(["sh", "-c", command], timeout_s=60)
    assert done.stdout.split()[0] == hashlib.sha256(content).hexdigest(), done.stderr


def test_no_frame_overtakes_another(late: Cluster) -> None:
    counting = started(late, COUNT, 1)
    try:
        printed(late, FLOOD, late.addresses[1], "500", "1000")
        numbers = [int(line) for line in counting.communicate(timeout=60)[0].split()]
    finally:
        end(counting)
    assert len(numbers) > 1
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("at_switch", [True, False], ids=["at-the-switch", "at-the-host"])
def test_a_link_that_was_cut_carries_again(answering: Cluster, at_switch: bool) -> None:
    namespace, device = ("switch", "host1") if at_switch else ("host1", "eth0")
    link = ["ip", "-n", f"{answering.tag}-{namespace}", "link", "set", device]
    ask = [sys.executable, "-c", ASK.replace("5001), 20", "5001), 0.5"), answering.addresses[1]]
    subprocess.run([*link, "down"], check=True, timeout=20)
    try:
        assert answering.run(ask, timeout_s=30).returncode != 0
        assert printed(answering, ASK, answering.addresses[2])
    finally:
        subprocess.run([*link, "up"], check=True, timeout=20)
    assert min(map(float, printed(answering, ASK, answering.addresses[1]))) >= 2 * LATENCY_MS


def test_a_cluster_whose_switch_was_killed_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with Cluster(hosts=2, latency="1ms") as cluster:
        [switch] = processes_at_switch(cluster.tag)
        os.kill(switch, signal.SIGKILL)
        deadline = time.monotonic() + 20
        with pytest.raises(ClusterError, match="switch of the emulated cluster ended with status -9") as caught:
            while time.monotonic() < deadline:
                cluster.run(["true"])
        assert "new cluster" in caught.value.remedy
    assert "ended before the cluster" in capsys.readouterr().err


def test_frames_that_were_dropped_are_reported_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with Cluster(hosts=2, latency="1ms") as cluster:
        printed(cluster, FLOOD, cluster.addresses[1], "1", "1")  # its neighbour is known from now on
        [switch] = processes_at_switch(cluster.tag)
        os.kill(switch, signal.SIGSTOP)
        try:
            # Twice what the kernel keeps for a port, its own overhead not counted.
            printed(cluster, FLOOD, cluster.addresses[1], str(4 * SOCKET_BUFFER_BYTES // 1400), "1400")
        finally:
            os.kill(switch, signal.SIGCONT)
    assert "fell behind and dropped" in capsys.readouterr().err


def test_a_switch_that_keeps_up_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Cluster(hosts=2, latency="1ms") as cluster:
        assert cluster.run(["ssh", "host1", "hostname"], timeout_s=30).stdout == "host1\n"
    assert "switch" not in capsys.readouterr().err
