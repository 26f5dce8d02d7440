"""Probe that `paceline doctor -H` runs on each host over ssh: its clock, and listening ports.

Listens on a port chosen by the system (as Gloo does) and on one of `paceline rank`'s ports. Answers each line of its
input with a line of JSON, and ends when its input ends. Needs only the standard library.
"""

from __future__ import annotations

import json
import random
import socket
import sys
import time
from collections.abc import Iterable
from typing import Any


def listen(ports: Iterable[int]) -> list[socket.socket]:
    """Return a socket on the first free port of `ports`, in a list; an empty list if none is free."""
    for port in ports:
        listening = socket.socket()
        try:
            listening.bind(("", port))
        except OSError:
            listening.close()
            continue
        listening.listen(1000)
        return [listening]
    return []


def reach(host: str, port: int, limit_s: float) -> str:
    """Connect to a port. Returns the problem, "" if it works."""
    try:
        address = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)[0][4]
    except OSError as error:
        return f"{host} is unknown ({error})"
    try:
        socket.create_connection((str(address[0]), port), limit_s).close()
    except OSError as error:
        return f"{address[0]}:{port}: {error}"
    return ""


def main() -> None:
    """Serve one examination. Arguments: first port of `paceline rank`, number of ports, limit in seconds."""
    first, count, limit_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    listening = listen([0]) + listen(random.sample(range(first, first + count), 20))
    for line in iter(sys.stdin.readline, ""):
        asked = json.loads(line)
        answer: Any = time.time()
        if asked == "hello":
            answer = {"name": socket.gethostname(), "ports": [one.getsockname()[1] for one in listening]}
        elif asked != "time":
            answer = [[host, port, reach(host, port, limit_s)] for host, port in asked]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
