"""One rank of a test world: waits for bodies to run, answers with their result or traceback."""

from __future__ import annotations

import faulthandler
import importlib
import signal
import sys
import traceback
from multiprocessing.connection import Client


def serve(address: str, rank: int) -> None:
    """Serve as `rank` until the other end goes away."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    with Client(address) as connection:
        connection.send(rank)
        while True:
            try:
                module, name, args = connection.recv()
            except EOFError:
                return
            try:
                case = getattr(importlib.import_module(module), name)
                connection.send(("ok", getattr(case, "body", case)(*args)))
            except BaseException:
                connection.send(("raised", traceback.format_exc()))


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
