"""Ranks that are forked from a process which has imported their framework already: a start in moments, not seconds.

A template imports frameworks and nothing of Horovod's or ours, starts no threads, and forks when it is told to. A child
gets its environment, session and log as a process of its own would have them, then serves as a rank
(integration_tests/support/worker.py). Variables that are read while a framework is imported must not differ between
ranks of one template: `forkable` says which environments may.
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
# What modules of tests import, too.
_COMMON = ("numpy", "pytest")
# What a framework imports when it is used: torch, for the first optimizer (seconds).
_LATER = {"torch": ("torch._dynamo",), "tensorflow": ()}
# What a framework does not read while it is imported (TensorFlow: when it makes its threads); what Keras reads, which
# TensorFlow imports.
_LATE = ("HOROVOD_", "PACELINE_", "TF_NUM_")
_EARLY = ("KERAS_BACKEND",)
# What Keras takes without it.
_DEFAULTS = {"KERAS_BACKEND": "tensorflow"}
# How long a template may take to import its frameworks and to answer.
ANSWER_S = 120.0


class Process(Protocol):
    """What a world of ranks needs of one: subprocess.Popen has it, too."""

    pid: int

    def send_signal(self, number: int) -> None: ...

    def kill(self) -> None: ...

    def wait(self, timeout: float) -> int:
        """The exit status; minus the signal's number for one that a signal ended."""
        ...


def frameworks_of(module: str) -> tuple[str, ...]:
    """Which frameworks the bodies of a test's module speak of; TensorFlow comes with torch: a template less."""
    path = importlib.import_module(module).__file__
    text = Path(path).read_text() if path else ""
    if "tensorflow" in text or "keras" in text:
        return FRAMEWORKS
    return ("torch",) if "torch" in text else ()


def forkable(env: Mapping[str, str]) -> bool:
    """Whether ranks that have these variables beside this process's own can be forked from a template."""
    return all(name.startswith(_LATE) or name in _EARLY for name in env)


class Forked:
    """A rank that was forked from a template, whose child it is."""

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
        """A process that serves as `rank` to the listener at `address`, with exactly these variables."""
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
        """Its ranks have ended before."""
        self._connection.close()
        self._process.kill()  # an interpreter with frameworks takes seconds to end, and has nothing to save
        self._process.wait(10)


_templates: dict[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], Template] = {}


def template(frameworks: tuple[str, ...], env: Mapping[str, str]) -> Template:
    """The one with these frameworks whose ranks' variables differ from `env` in those alone that are read late."""
    env = {**_DEFAULTS, **env}
    key = frameworks, tuple(sorted(item for item in env.items() if not item[0].startswith((*_LATE, "PYTEST_"))))
    if key not in _templates:
        _templates[key] = Template(frameworks, env)
    return _templates[key]


def end_templates() -> None:
    """End all of them; before, all worlds."""
    while _templates:
        _templates.popitem()[1].end()


def _status(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _become(env: Mapping[str, str], log: str) -> None:
    """Take on the look of a process that was started by itself."""
    os.setsid()
    os.environ.clear()
    os.environ.update(env)
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(written, 1)
    os.dup2(written, 2)
    os.close(written)


def main() -> None:
    """Import, then fork on request until the other end goes away; children serve as ranks."""
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
