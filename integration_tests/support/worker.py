"""One rank of a test world: waits for bodies to run, answers with their result or traceback."""

from __future__ import annotations

import faulthandler
import importlib
import os
import signal
import sys
import traceback
from multiprocessing.connection import Client
from typing import Any


def serve(address: str, rank: int) -> None:
    """Serve as `rank` until the other end closes the connection."""
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
                connection.send(("ok", call(module, name, args)))
            except BaseException:
                connection.send(("raised", traceback.format_exc()))


def call(module: str, name: str, args: tuple[Any, ...]) -> Any:
    """Run a body and return its result; the module that it or its file calls `hvd` is initialised before."""
    tests = importlib.import_module(module)
    case = getattr(tests, name)
    _check_backend()
    hvd: Any = getattr(tests, "hvd", None)
    if face := getattr(case, "hvd", ""):
        hvd = importlib.import_module(face)
        rank, size, *others = args
        args = (rank, size, hvd, *others)
    if hvd is not None:
        hvd.init()
    return getattr(case, "body", case)(*args)


def _check_backend() -> None:
    """Keras has the backend of this rank's environment, also where it was imported before the rank was forked."""
    keras = sys.modules.get("keras")
    wanted = os.environ.get("KERAS_BACKEND")
    assert keras is None or wanted in (None, keras.backend.backend()), f"{wanted}, found {keras.backend.backend()}"


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
