"""Ranks forked from a process that has imported their framework already: they start in moments, not seconds.

A template imports frameworks, nothing of Horovod's or ours, starts no threads, and forks on request. A child gets its
environment, session and log like a separate process, then serves as a rank (integration_tests/support/worker.py).
Variables that are read while a framework is imported must not differ between ranks of one template: `forkable` checks
an environment.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Protocol

FRAMEWORKS = ("torch", "tensorflow")
# Also imported by modules of tests.
_COMMON = ("numpy", "pytest")
# Imported by a framework at its first use: by torch for the first optimizer (seconds).
_LATER = {"torch": ("torch._dynamo",), "tensorflow": ()}
# Variables that a framework does not read while it is imported (TensorFlow reads them when it makes its threads); and
# variables of Keras, which TensorFlow imports.
_LATE = ("HOROVOD_", "PACELINE_", "TF_NUM_")
_EARLY = ("KERAS_BACKEND",)
# Keras' values without the variable.
_DEFAULTS = {"KERAS_BACKEND": "tensorflow"}
# Limit for a template to import its frameworks and to answer.
ANSWER_S = 120.0


class Process(Protocol):
    """Operations on a process that a world of ranks needs; subprocess.Popen has them, too."""

    pid: int

    def send_signal(self, number: int) -> None: ...

    def kill(self) -> None: ...

    def wait(self, timeout: float) -> int:
        """Wait for the exit status; minus the signal's number if a signal ended it."""
        ...


def frameworks_of(module: str) -> tuple[str, ...]:
    """Frameworks that a test module mentions. TensorFlow is imported together with torch, which saves a template."""
    path = importlib.import_module(module).__file__
    text = Path(path).read_text() if path else ""
    if "tensorflow" in text or "keras" in text:
        return FRAMEWORKS
    return ("torch",) if "torch" in text else ()


def forkable(env: Mapping[str, str]) -> bool:
    """True if ranks with these additional variables can be forked from a template."""
    return all(name.startswith(_LATE) or name in _EARLY for name in env)


class Forked:
    """A rank forked from a template, whose child it is."""

    def __init__(self, template: Template, pid: int) -> None:
        self.pid = pid
        self._template = template
        self._status: int | None = None

    def send_signal(self, number: int) -> None:
        if self._status is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float) -> int:
        until_s = time.monotonic() + timeout
        while self._status is None:
            self._status = self._template.ask(("status", self.pid))
            if self._status is None:
                if time.monotonic() > until_s:
                    raise TimeoutError(f"Process {self.pid} has not ended within {timeout:g} s.")
                time.sleep(0.01)
        return self._status


class Template:
    def __init__(self, frameworks: tuple[str, ...], env: Mapping[str, str]) -> None:
        self._connection, theirs = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "integration_tests.support.forks", str(theirs.fileno()), *frameworks],
            env=dict(env),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()

    def fork(self, address: str, rank: int, env: Mapping[str, str], log: Path) -> Forked:
        """Fork a process that serves as `rank` to the listener at `address`, with exactly these variables."""
        pid = self.ask(("fork", address, rank, dict(env), str(log)))
        assert pid is not None
        return Forked(self, pid)

    def ask(self, request: tuple[object, ...]) -> int | None:
        self._connection.send(request)
        if not self._connection.poll(ANSWER_S):
            raise TimeoutError(f"The process that forks ranks has not answered {request[0]} within {ANSWER_S:g} s.")
        answer: int | None = self._connection.recv()
        return answer

    def end(self) -> None:
        """End the template, after its ranks."""
        self._connection.close()
        self._process.kill()  # an interpreter with frameworks takes seconds to end, and has nothing to save
        self._process.wait(10)


_templates: dict[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], Template] = {}


def template(frameworks: tuple[str, ...], env: Mapping[str, str]) -> Template:
    """Return a template with these frameworks; its ranks' variables may differ from `env` only in those read late."""
    env = {**_DEFAULTS, **env}
    key = frameworks, tuple(sorted(item for item in env.items() if not item[0].startswith((*_LATE, "PYTEST_"))))
    if key not in _templates:
        _templates[key] = Template(frameworks, env)
    return _templates[key]


def end_templates() -> None:
    """End all templates, after all worlds."""
    while _templates:
        _templates.popitem()[1].end()


def _status(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _become(env: Mapping[str, str], log: str) -> None:
    """Make the child look like a separate process."""
    os.setsid()
    os.environ.clear()
    os.environ.update(env)
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(written, 1)
    os.dup2(written, 2)
    os.close(written)


def main() -> None:
    """Import, then fork on request until the other end closes; children serve as ranks."""
    connection = Connection(int(sys.argv[1]))
    for name in (*_COMMON, *(each for framework in sys.argv[2:] for each in (framework, *_LATER[framework]))):
        importlib.import_module(name)
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        if request[0] == "status":
            connection.send(_status(request[1]))
            continue
        _, address, rank, env, log = request
        pid = os.fork()
        if pid == 0:
            break
        connection.send(pid)
    connection.close()
    _become(env, log)
    from integration_tests.support.worker import serve

    serve(address, rank)


if __name__ == "__main__":
    main()
