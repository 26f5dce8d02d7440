"""What a message takes between two ranks."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable
from typing import Any

LIMIT_S = 30.0
_ANSWER = b"!"
_TOKEN_BYTES = 16

# Gives every rank the values of all ranks, in their order.
Gather = Callable[[Any], list[Any]]


class Pairs:
    """Connections between two ranks at a time; a context manager.

    TCP on its own ports, which are open while this lasts, for who knows a token that rank 0 has drawn. `host` is the
    name or address by which other ranks reach this one. All ranks make one together, and make its calls together.
    """

    def __init__(self, rank: int, host: str, gather: Gather) -> None:
        self._rank = rank
        self._gather = gather
        # What is on one host needs to be reached from nowhere else.
        alone = len(set(gather(host))) == 1
        self._listener = socket.create_server(("127.0.0.1" if alone else "", 0))
        self._listener.settimeout(LIMIT_S)
        told = gather(
            ("127.0.0.1" if alone else host, self._listener.getsockname()[1], secrets.token_bytes(_TOKEN_BYTES))
        )
        self._addresses = [(str(name), int(port)) for name, port, _ in told]
        self._token: bytes = told[0][2]

    def __enter__(self) -> Pairs:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def measure_pair(self, sender: int, receiver: int, size_bytes: int, rounds: int) -> list[float]:
        """Seconds of each round, the same list on all ranks: `size_bytes` from one to the other, and a byte back.

        Raises OSError on these two ranks if they cannot reach each other within LIMIT_S.
        """
        found: list[float] = []
        if self._rank == sender:
            with socket.create_connection(self._addresses[receiver], LIMIT_S) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(self._token)
                found = _send(connection, size_bytes, rounds)
        elif self._rank == receiver:
            with self._accept() as connection:
                _receive(connection, size_bytes, rounds)
        seconds: list[float] = self._gather(found)[sender]
        return seconds

    def _accept(self) -> socket.socket:
        """The first connection whose first bytes are the token; others are closed."""
        while True:
            connection, _ = self._listener.accept()
            connection.settimeout(LIMIT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if secrets.compare_digest(bytes(_exactly(connection, _TOKEN_BYTES)), self._token):
                return connection
            connection.close()


def _send(connection: socket.socket, size_bytes: int, rounds: int) -> list[float]:
    message = bytes(size_bytes)
    seconds = []
    for _ in range(rounds):
        begin_s = time.monotonic()
        connection.sendall(message)
        _exactly(connection, len(_ANSWER))
        seconds.append(time.monotonic() - begin_s)
    return seconds


def _receive(connection: socket.socket, size_bytes: int, rounds: int) -> None:
    for _ in range(rounds):
        _exactly(connection, size_bytes)
        connection.sendall(_ANSWER)


def _exactly(connection: socket.socket, size_bytes: int) -> bytearray:
    """The next bytes; raises ConnectionError if the other side is gone."""
    data = bytearray(size_bytes)
    rest = memoryview(data)
    while rest:
        count = connection.recv_into(rest)
        if count == 0:
            raise ConnectionError("the other rank has closed the connection")
        rest = rest[count:]
    return data
