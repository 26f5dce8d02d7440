"""What `paceline doctor -H` runs on each host, sent there over ssh: a clock, and ports that listen.

Listens on one port of those that the system hands out (Gloo's) and on one of `paceline rank`'s. Answers each line of
its input with a line of JSON, and ends with its input. Needs nothing but the standard library.
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
    """A socket on the first of `ports` that is free."""
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
    """What comes of connecting; "" if it works."""
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
    """Serve one examination; the words are the first of `paceline rank`'s ports, how many, and a limit in seconds."""
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
