"""Emulated hosts: invalid arguments, and the switch that delays frames, between sockets instead of links."""

from __future__ import annotations

import itertools
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.errors import UserError
from paceline.examples.benchmarks.cluster import Cluster, tools
from paceline.examples.benchmarks.cluster.latencies import parse_latency
from paceline.examples.benchmarks.cluster.noise import slowdowns
from paceline.examples.benchmarks.cluster.rates import FRAME_BYTES, TokenBucket, parse_rate
from paceline.examples.benchmarks.cluster.switch import OFFLOAD_BYTES, Switch


@pytest.mark.parametrize(
    ("text", "found"),
    [("1gbit", 10**9), ("2.5Mbit", 2_500_000), (" 64 kbit ", 64_000), ("2ms", 2_000_000), ("100us", 10**5), ("0ms", 0)],
)
def test_quantities_are_decimal(text: str, found: int) -> None:
    assert (parse_rate if "bit" in text else parse_latency)(text) == found


@pytest.mark.parametrize("tail", [1.5, 3.0])
def test_noise_slows_half_of_the_time_and_one_in_a_hundred_by_its_tail(tail: float) -> None:
    factors = np.array(list(itertools.islice(slowdowns(tail), 20_000)))
    assert factors.min() == 1.0 and 0.48 < (factors == 1.0).mean() < 0.52
    assert np.quantile(factors, 0.99) == pytest.approx(tail, rel=0.03)
    with pytest.raises(UserError, match="is no noise"):
        next(slowdowns(1.0))


@pytest.mark.parametrize(
    ("arguments", "complaint", "remedy"),
    [
        ({"hosts": 0}, "A cluster of 0 hosts", ""),
        ({"hosts": 251}, "A cluster of 251 hosts", ""),
        ({"slots": 0}, "0 slots", ""),
        ({"rates": ["1gbit", "1gbti"]}, "unknown unit 'gbti'", "Did you mean gbit?"),
        ({"rates": ["1gbit"]}, "1 rates are given for 2 hosts", ""),
        ({"rate": "1gbit", "rates": [None, None]}, "Both rate='1gbit' and", ""),
        ({"rate": "-1gbit"}, "'-1gbit' cannot be used: it is not a number", "gbit"),
        ({"rate": "10MB/s"}, "unknown unit 'mb/s'", ""),
        ({"rate": "9kbit"}, "between 10kbit and 100gbit", ""),
        ({"rate": "101gbit"}, "between 10kbit and 100gbit", ""),
        ({"latency": "2"}, "latency '2' cannot be used: it has no unit", "us, ms, s"),
        ({"latency": "99us"}, "0 or lie between 100us and 1s", ""),
        ({"latency": "1.1s"}, "0 or lie between 100us and 1s", ""),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], complaint: str, remedy: str) -> None:
    with pytest.raises(UserError, match=complaint) as caught:
        Cluster(**{"hosts": 2, **arguments})
    assert remedy in caught.value.remedy


def test_the_bucket_holds_two_milliseconds_and_a_cluster_is_its_block() -> None:
    assert TokenBucket.for_rate(10**9) == TokenBucket(10**9, 250_000, 6_250_000 + 250_000)
    assert TokenBucket.for_rate(10**6) == TokenBucket(10**6, 2 * FRAME_BYTES, 128 * 1024 + 2 * FRAME_BYTES)
    # A slower bucket holds what waits in the queue of the one before: packets of at most 64 KiB and headers.
    assert TokenBucket.for_rate(10**6, TokenBucket.for_rate(10**8)).burst_bytes == 25_000
    assert TokenBucket.for_rate(10**6, TokenBucket.for_rate(10**9)).burst_bytes == 72 * 1024
    assert TokenBucket.for_rate(10**9, TokenBucket.for_rate(10**6)) == TokenBucket.for_rate(10**9)
    # A cluster outside its block is refused.
    cluster = Cluster(hosts=3, slots=2)
    assert cluster.host_list == "host0:2,host1:2,host2:2"
    with pytest.raises(UserError, match="does not exist now"):
        cluster.run(["true"])


def test_without_root_the_user_is_notified() -> None:
    script = (
        "import os\n"
        "from paceline.errors import UserError\n"
        "from paceline.examples.benchmarks.cluster import Cluster\n"
        "if os.geteuid() == 0: os.setgid(65534), os.setuid(65534)\n"
        "try: Cluster(hosts=1).__enter__()\n"
        "except UserError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "needs root" in done.stdout and "sudo" in done.stdout, done.stderr


def test_root_without_programs_or_namespaces_is_notified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools, "_SYSTEM_PATH", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(UserError) as caught:
        tools.check()
    assert all(program in caught.value.problem for program in ("ip", "tc", "sshd", "ssh"))
    assert all(word in caught.value.remedy for word in ("apt-get install", "iproute2", "openssh-server"))
    for program in tools.PACKAGES:  # as in an ordinary container
        (tmp_path / program).write_text("#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2; exit 1\n")
        (tmp_path / program).chmod(0o755)
    with pytest.raises(UserError, match="Operation not permitted") as caught:
        tools.check()
    assert "privileges" in caught.value.remedy


LATENCY_NS = 5_000_000
LONG_NS = 3_600 * 10**9  # nothing leaves
LIMIT_S = 20.0
BROADCAST = b"\xff" * 6


def mac(host: int) -> bytes:
    return bytes([2, 0, 0, 0, 0, host])


def frame(to: bytes, source: int, text: bytes = b"") -> bytes:
    return bytes(OFFLOAD_BYTES) + to + mac(source) + text


class Cabled:
    """A switch, and the hosts' ends of its cables."""

    def __init__(self, ports: int, latency_ns: int, most_held_bytes: int) -> None:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(ports)]
        self.at_switch, self.at_hosts = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        for each in self.at_switch:
            each.setblocking(False)
        for each in self.at_hosts:
            each.settimeout(LIMIT_S)
        self.switch = Switch(self.at_switch, latency_ns, most_held_bytes)

    def heard(self, host: int) -> bytes:
        """Return the text of the next frame that a host gets."""
        return self.at_hosts[host].recv(1 << 17)[OFFLOAD_BYTES + 12 :]

    def nothing_for(self, *hosts: int) -> bool:
        """True if no frame waits for these hosts; frames that the switch has sent so far are there."""
        return not select.select([self.at_hosts[host] for host in hosts], [], [], 0)[0]


@contextmanager
def cabled(ports: int, latency_ns: int = LATENCY_NS, most_held_bytes: int = 1 << 20) -> Iterator[Cabled]:
    made = Cabled(ports, latency_ns, most_held_bytes)
    end, to_end = os.pipe()
    thread = threading.Thread(target=made.switch.carry, args=([end],))
    thread.start()
    try:
        yield made
    finally:
        os.close(to_end)
        thread.join(LIMIT_S)
        assert not thread.is_alive()
        os.close(end)
        for each in made.at_switch + made.at_hosts:
            each.close()


def test_frames_go_where_their_destination_was_heard_last_and_everywhere_else_before() -> None:
    with cabled(3) as made:
        made.at_hosts[0].send(frame(mac(0), 0, b"self"))
        made.at_hosts[0].send(frame(mac(1), 0, b"who"))
        assert [made.heard(1), made.heard(2)] == [b"who", b"who"]
        for port in (1, 2):  # it moves
            made.at_hosts[port].send(frame(BROADCAST, 1, b"here"))
            assert made.heard(0) == b"here"
        made.at_hosts[0].send(frame(mac(1), 0, b"found"))
        assert [made.heard(2), made.heard(2)] == [b"here", b"found"]
        assert made.heard(1) == b"here"
        assert made.nothing_for(0, 1, 2) and made.switch.dropped == 0


def test_frames_keep_their_order_and_none_comes_early() -> None:
    count, sizes = 40, (0, 1, 1500, 6000)  # a port's buffer has room for all of them
    with cabled(2, most_held_bytes=1 << 30) as made:
        sent_ns: list[int] = []

        def send() -> None:
            for number in range(count):
                sent_ns.append(time.monotonic_ns())
                made.at_hosts[0].send(frame(mac(1), 0, b"%d " % number + bytes(sizes[number % len(sizes)])))

        sender = threading.Thread(target=send)
        sender.start()
        for number in range(count):
            text = made.heard(1)
            assert time.monotonic_ns() - sent_ns[number] >= LATENCY_NS
            assert text == b"%d " % number + bytes(sizes[number % len(sizes)])
        sender.join(LIMIT_S)
        assert made.switch.dropped == 0


def wait_for_drops(switch: Switch, count: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while switch.dropped < count:
        assert time.monotonic() < deadline, f"{switch.dropped} of {count} frames were dropped"
        time.sleep(0.005)


def test_frames_beyond_the_bound_are_dropped_and_counted_until_others_have_left() -> None:
    one = frame(mac(1), 0, bytes(100))
    with cabled(2, LONG_NS, 2 * len(one)) as made:
        for _ in range(5):
            made.at_hosts[0].send(one)
        wait_for_drops(made.switch, 3)
        assert made.nothing_for(1)
    with cabled(2, LATENCY_NS, len(one)) as made:
        for _ in range(3):
            made.at_hosts[0].send(one)
            assert made.heard(1) == bytes(100)
        assert made.switch.dropped == 0


def test_frames_that_a_port_has_no_room_for_are_counted() -> None:
    count = 200
    with cabled(2, 0) as made:
        made.at_switch[1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        for _ in range(count):
            made.at_hosts[0].send(frame(mac(1), 0, bytes(4000)))
        wait_for_drops(made.switch, 1)
        arrived, deadline = 0, time.monotonic() + LIMIT_S
        while arrived + made.switch.dropped < count:
            assert time.monotonic() < deadline
            if not made.nothing_for(1):
                made.heard(1)
                arrived += 1
        assert arrived > 0
