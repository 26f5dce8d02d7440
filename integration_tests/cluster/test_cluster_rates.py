"""Rates are enforced in each direction of each link, and can change while the cluster runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from paceline.examples.benchmarks.cluster import Cluster

pytestmark = pytest.mark.more

WINDOW_S = 1.5

# The receiver measures: bits per second over a window that starts half a window after the first byte, when the full
# token buckets of the start are spent.
RECEIVE = """
import socket, sys, time
window_s = float(sys.argv[2])
peer, _ = socket.create_server((sys.argv[1], 5001)).accept()
peer.recv(1)
begin = time.monotonic() + window_s / 2
counted = 0
while (now := time.monotonic()) < begin + window_s:
    received = len(peer.recv(1 << 18))
    counted += received if now >= begin else 0
print(8 * counted / (now - begin))
"""
SEND = """
import socket, sys, time
deadline = time.monotonic() + 20
while True:
    try:
        peer = socket.create_connection((sys.argv[1], 5001), 20)
        break
    except ConnectionRefusedError:
        assert time.monotonic() < deadline
        time.sleep(0.02)
try:
    while True:
        peer.sendall(bytes(1 << 16))
except (BrokenPipeError, ConnectionResetError):
    pass
"""


def measure_bit_s(cluster: Cluster, sender: int, receiver: int) -> float:
    """Payload per second of one TCP connection from host `sender` to host `receiver`."""
    address = cluster.addresses[receiver]
    receiving = cluster.popen(
        [sys.executable, "-c", RECEIVE, address, str(WINDOW_S)], host=receiver, stdout=subprocess.PIPE, text=True
    )
    sending = cluster.popen([sys.executable, "-c", SEND, address], host=sender)
    try:
        output, _ = receiving.communicate(timeout=60)
        assert sending.wait(60) == 0
        return float(output)
    finally:
        for process in (receiving, sending):
            process.kill()
            process.wait(10)


@pytest.fixture(scope="module", params=[None, "2ms"], ids=["no-latency", "2ms"])
def unequal(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(hosts=3, rates=["40mbit", None, None], latency=request.param) as cluster:
        yield cluster


@pytest.mark.parametrize(("sender", "receiver"), [(0, 1), (1, 0)], ids=["sending", "receiving"])
def test_a_rate_holds_in_each_direction(unequal: Cluster, sender: int, receiver: int) -> None:
    assert 0.5 * 40e6 < measure_bit_s(unequal, sender, receiver) < 1.15 * 40e6


def test_other_links_keep_their_own_rate(unequal: Cluster) -> None:
    assert measure_bit_s(unequal, 1, 2) > 2 * 40e6


def test_a_rate_changes_while_the_cluster_runs(unequal: Cluster) -> None:
    try:
        unequal.set_rate(2, "10mbit")
        assert 0.5 * 10e6 < measure_bit_s(unequal, 1, 2) < 1.15 * 10e6
        unequal.set_rate(2, "80mbit")
        assert 0.5 * 80e6 < measure_bit_s(unequal, 1, 2) < 1.15 * 80e6
    finally:
        unequal.set_rate(2, None)
    unequal.set_rate(2, None)  # twice is fine
    assert measure_bit_s(unequal, 1, 2) > 2 * 80e6
