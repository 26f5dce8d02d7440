"""A task's permanent connection to rank 0: messages with limits, and detection of a dead host."""

from __future__ import annotations

import socket
import threading
import time

from paceline.launch.rank.messages import LIMIT_BYTES, Message, decode, encode

# A host without an answer for this long is considered dead.
SILENCE_S = 15


class Closed(Exception):
    """The other side has ended the connection, or it broke; the text has the reason."""


def keep_alive(connection: socket.socket) -> None:
    """Make the system detect a dead host: probes after 5 s of silence, every 2 s."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in (
        ("TCP_KEEPIDLE", 5),
        ("TCP_KEEPINTVL", 2),
        ("TCP_KEEPCNT", (SILENCE_S - 5) // 2),
        ("TCP_USER_TIMEOUT", SILENCE_S * 1000),
    ):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Channel:
    """Messages over one connection. One thread may receive while others send."""

    def __init__(self, connection: socket.socket) -> None:
        keep_alive(connection)
        self._connection = connection
        self._sending = threading.Lock()
        self._buffer = b""
        self.address: str = connection.getsockname()[0]
        self.peer: str = connection.getpeername()[0]

    def send(self, message: Message) -> None:
        """Send a message. Raises Closed."""
        try:
            with self._sending:
                self._connection.settimeout(SILENCE_S)
                self._connection.sendall(encode(message))
        except OSError as error:
            raise Closed(str(error)) from None

    def receive(self, limit_s: float) -> Message | None:
        """Return the next message; None if there is none within `limit_s`.

        Raises Closed, and ValueError for an invalid message.
        """
        end_s = time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return None
            try:
                self._connection.settimeout(max(left_s, 0.001))
                got = self._connection.recv(65536)
            except TimeoutError:
                return None
            except OSError as error:
                raise Closed(str(error)) from None
            if not got:
                raise Closed("the other side closed it")
            self._buffer += got
            if len(self._buffer) > LIMIT_BYTES:
                raise ValueError(f"{self._buffer[:60]!r}... has no end")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return decode(line)

    def close(self) -> None:
        """End the connection, also for a thread that is receiving, which would keep it open without the shutdown."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._connection.close()
