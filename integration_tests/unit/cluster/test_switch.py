"""The switch that holds frames, between sockets in place of links: where frames go, in which order, and its bounds."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from paceline.examples.benchmarks.cluster.switch import OFFLOAD_BYTES, Switch

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
        """The text of the next frame that a host gets."""
        return self.at_hosts[host].recv(1 << 17)[OFFLOAD_BYTES + 12 :]

    def nothing_for(self, *hosts: int) -> bool:
        """Whether nothing waits for these hosts; what the switch has handed on so far is there."""
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
