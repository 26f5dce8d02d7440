"""Switch of a cluster with network latency: a process that delays every frame.

    python -m paceline.examples.benchmarks.cluster.switch LATENCY_NS OWNER_PID PORT...

switched.py starts it in the switch's network namespace. A port is the end of a host's cable there. Frames are read from
it and written to it through a packet socket, so that the token buckets of the cable's ends determine rates. Large
packets of TCP offload pass whole, as through a bridge: the header of each frame says how to segment them.

It prints `ready`, then carries frames until its standard input or its owner ends. Then it prints the number of dropped
frames.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence

# Every frame begins with struct virtio_net_hdr (linux/virtio_net.h).
OFFLOAD_BYTES = 10
_TO = slice(OFFLOAD_BYTES, OFFLOAD_BYTES + 6)
_FROM = slice(OFFLOAD_BYTES + 6, OFFLOAD_BYTES + 12)
# The largest offload packet is 64 KiB; the rest is headers.
_FRAME_BYTES = 2**16 + 256
# Most frames read from one port before others get their turn.
_FRAMES_AT_ONCE = 64

# Bounds for each port: unread frames, and as many in its token bucket, both with the kernel's overhead; and delayed
# frames (64 MiB are half a second at 1 Gbit/s).
SOCKET_BUFFER_BYTES = 2**26
HELD_BYTES = 2**26

# linux/if_packet.h, linux/if_ether.h, asm-generic/socket.h
_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_PACKET_VNET_HDR = 15
_PACKET_IGNORE_OUTGOING = 23
_ETH_P_ALL = 3
_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33


class Switch:
    """A learning switch between `ports`, non-blocking sockets that preserve frame boundaries.

    Every frame leaves at least `latency_ns` after it was read, in the order of reading. It goes to the port where its
    destination address was last seen, otherwise to all other ports. `dropped` counts frames that arrived while
    `most_held_bytes` were held, and frames that did not fit into a port's buffer.
    """

    def __init__(self, ports: Sequence[socket.socket], latency_ns: int, most_held_bytes: int) -> None:
        self.dropped = 0
        self._ports = list(ports)
        self._latency_ns = latency_ns
        self._most_held_bytes = most_held_bytes
        self._held: deque[tuple[int, bytes, socket.socket]] = deque()  # due time, frame, source port
        self._held_bytes = 0
        self._heard: dict[bytes, socket.socket] = {}

    def carry(self, ends: Iterable[int]) -> None:
        """Carry frames until one of the file descriptors `ends` can be read."""
        ports = {port.fileno(): port for port in self._ports}
        watched = [*ports, *ends]
        while True:
            for readable in select.select(watched, (), (), self._until_due_s())[0]:
                if readable not in ports:
                    return
                self._take(ports[readable])
            self._hand_on()

    def _until_due_s(self) -> float | None:
        return max(0, self._held[0][0] - time.monotonic_ns()) / 1e9 if self._held else None

    def _take(self, port: socket.socket) -> None:
        for _ in range(_FRAMES_AT_ONCE):
            try:
                frame = port.recv(_FRAME_BYTES)
            except OSError:  # no more frames, or the link was taken down
                return
            self._heard[frame[_FROM]] = port
            if self._held_bytes + len(frame) > self._most_held_bytes:
                self.dropped += 1
                continue
            self._held_bytes += len(frame)
            self._held.append((time.monotonic_ns() + self._latency_ns, frame, port))

    def _hand_on(self) -> None:
        now = time.monotonic_ns()
        while self._held and self._held[0][0] <= now:
            _, frame, source = self._held.popleft()
            self._held_bytes -= len(frame)
            heard = self._heard.get(frame[_TO])
            for port in self._ports if heard is None else (heard,):
                if port is not source:
                    self._send(port, frame)

    def _send(self, port: socket.socket, frame: bytes) -> None:
        try:
            port.send(frame)
        except BlockingIOError:
            self.dropped += 1
        except OSError:  # the link's queue is full, which its token bucket counts, or the link is down
            pass


def open_port(name: str) -> socket.socket:
    """Open a packet socket on the interface `name`: it receives incoming frames, offload header first."""
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    port.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, SOCKET_BUFFER_BYTES)
    port.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, SOCKET_BUFFER_BYTES)
    port.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    port.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    port.bind((name, _ETH_P_ALL))
    return port


def unread(port: socket.socket) -> int:
    """Number of frames that arrived at a packet socket while its buffer was full."""
    _, dropped = struct.unpack("II", port.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
    return int(dropped)


def come_first() -> None:
    """Schedule this process before ranks that compute, as the kernel's own switch is: frames must leave on time."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:  # a control group without real-time budget
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, -20)


def main(latency_ns: int, owner_pid: int, names: Sequence[str]) -> int:
    """Run the switch until the owner closes our input or ends."""
    try:
        owner = os.pidfd_open(owner_pid)
    except ProcessLookupError:
        return 0
    ports = [open_port(name) for name in names]
    switch = Switch(ports, latency_ns, HELD_BYTES * len(ports))
    gc.disable()  # no reference cycles here, and a collection over thousands of frames would delay frames
    come_first()
    os.write(sys.stdout.fileno(), b"ready\n")
    switch.carry((sys.stdin.fileno(), owner))
    dropped = switch.dropped + sum(map(unread, ports))
    with contextlib.suppress(BrokenPipeError):  # no reader is left
        os.write(sys.stdout.fileno(), b"%d\n" % dropped)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
