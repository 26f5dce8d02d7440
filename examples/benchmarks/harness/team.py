"""The ranks of one system, which execute orders and are stopped in between.

Stopped means SIGSTOP. An idle system must use neither processor nor network, and Horovod's background threads exchange
messages every millisecond even in an idle program. Connections survive (the kernel answers for a stopped process). A
wait inside Gloo that times out meanwhile does not, so connections.py sets high limits. Restarting the ranks in each
turn would take seconds instead of milliseconds.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from paceline.errors import UserError
from paceline.examples.benchmarks.harness.hosts import Hosts
from paceline.examples.benchmarks.harness.place import Hello, Place
from paceline.examples.benchmarks.harness.rank import log_path
from paceline.examples.benchmarks.harness.system import System

START_LIMIT_S = 120.0
READY_LIMIT_S = 600.0
STOP_LIMIT_S = 10.0
END_LIMIT_S = 10.0
LOG_TAIL = 3000
# From the moment when all ranks are ready to their call: all of them must have received the time and sleep.
_MARGIN_S, _MARGIN_PER_RANK_S = 1e-3, 0.5e-3

AnyTeam = TypeVar("AnyTeam", bound="Team")


class Team:
    """`size` ranks of `system`, the same number on each of `hosts`; a context manager that leaves no process running.

    Entering starts and connects the ranks and stops them. `hello` has the first message of each rank. Raises UserError
    with the output of the rank in question when one ends, and with the stacks of all when one does not answer in time.
    """

    def __init__(self, system: System, size: int, hosts: Hosts) -> None:
        self.system = system
        self.size = size
        self.hosts = hosts
        self.hello: list[Any] = []
        self.sent_bytes: float | None = None  # by the host that sent most, while the last order was carried out
        self._dir: tempfile.TemporaryDirectory[str] | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: dict[int, Connection] = {}
        self._pids: dict[int, int] = {}

    def __enter__(self: AnyTeam) -> AnyTeam:
        try:
            self._begin()
            self.hello = self._answers(READY_LIMIT_S)
            self.get_ready()
            self._stop()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def get_ready(self) -> None:
        """Prepare the ranks once, while they run."""

    def ask(self, order: Any, limit_s: float, meetings: int = 0) -> list[Any]:
        """Let the ranks run, send `order` to all, and stop them again. Return their answers in rank order.

        Meanwhile each rank reports `meetings` times that it is ready, and gets the moment at which all begin.
        """
        self._signal(signal.SIGCONT)
        before = self.hosts.traffic()
        answers = self.order(order, limit_s, meetings)
        self._stop()
        after = self.hosts.traffic()
        if before is not None and after is not None:
            self.sent_bytes = max(end.sent_bytes - begin.sent_bytes for begin, end in zip(before, after, strict=True))
        return answers

    def order(self, order: Any, limit_s: float, meetings: int = 0) -> list[Any]:
        """Send an order to ranks that already run."""
        self._send(order)
        for _ in range(meetings):
            self._answers(limit_s)
            self._send(time.monotonic() + _MARGIN_S + _MARGIN_PER_RANK_S * self.size)
        return self._answers(limit_s)

    @property
    def folder(self) -> str:
        """Folder that is private to the system and shared by all of its ranks."""
        assert self._dir is not None
        return self._dir.name

    @property
    def pids(self) -> list[int]:
        """Process ids of the ranks."""
        return list(self._pids.values())

    def environment(self) -> dict[str, str]:
        """Return the environment variables of the ranks."""
        return {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **self.system.env}

    def _start(self, control: str) -> Iterator[subprocess.Popen[bytes]]:
        for rank in (-1,) if self.system.forked else range(self.size):
            place = Place(rank, self.size, self.hosts.names, self.hosts.addresses, self.folder, control)
            words = [msgspec.json.encode(place).decode(), self.system.setup, json.dumps(dict(self.system.options))]
            argv = [sys.executable, "-m", "paceline.examples.benchmarks.harness.rank", *words]
            yield self.hosts.start(argv, max(0, place.host), self.environment())

    def _begin(self) -> None:
        self._dir = _short_folder()
        control = str(Path(self.folder) / "control")
        # Socket paths are visible to emulated hosts, which share the file system: control messages use no network.
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(control)
            listener.listen(self.size)
            listener.settimeout(0.1)
            for process in self._start(control):  # one by one: a later one may fail to start
                self._processes.append(process)
            self._accept(listener)

    def _accept(self, listener: socket.socket) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while len(self._connections) < self.size:
            try:
                accepted, _ = listener.accept()
            except TimeoutError:
                self._check_alive()
                if time.monotonic() > deadline:
                    raise self._silent(START_LIMIT_S, set(range(self.size)) - set(self._connections)) from None
                continue
            connection = Connection(accepted.detach())
            hello = connection.recv()
            assert isinstance(hello, Hello)
            self._connections[hello.rank] = connection
            self._pids[hello.rank] = hello.pid

    def _send(self, order: Any) -> None:
        for connection in self._connections.values():
            connection.send(order)

    def _answers(self, limit_s: float) -> list[Any]:
        answers: dict[int, Any] = {}
        ranks = {connection: rank for rank, connection in self._connections.items()}
        deadline = time.monotonic() + limit_s
        while len(answers) < self.size:
            missing = [connection for connection, rank in ranks.items() if rank not in answers]
            arrived = wait(missing, max(0.0, deadline - time.monotonic()))
            if not arrived:
                raise self._silent(limit_s, {ranks[connection] for connection in missing})
            for connection in arrived:
                assert isinstance(connection, Connection)
                rank = ranks[connection]
                try:
                    answers[rank] = connection.recv()
                except (EOFError, ConnectionError):
                    raise self._ended(rank) from None
        return [answers[rank] for rank in range(self.size)]

    def _stop(self) -> None:
        """Stop the ranks; returns when none of them runs."""
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + STOP_LIMIT_S
        for rank, pid in self._pids.items():
            while _state(pid) not in ("T", "t"):
                self._check_alive()
                if time.monotonic() > deadline:
                    raise self._silent(STOP_LIMIT_S, {rank})
                time.sleep(0.001)

    def _end(self) -> None:
        """Kill the ranks, stopped or not."""
        for connection in self._connections.values():
            connection.close()
        for rank in self._pids:
            self._signal_to(rank, signal.SIGKILL)
        for process in self._processes:
            if process.poll() is None:
                process.kill()
        for process in self._processes:
            process.wait(END_LIMIT_S)
        if self._dir is not None:
            self._dir.cleanup()

    def _signal(self, number: signal.Signals) -> None:
        for rank in self._pids:
            if not self._signal_to(rank, number):
                raise self._ended(rank)

    def _signal_to(self, rank: int, number: signal.Signals) -> bool:
        """Return False if the rank has ended."""
        # A process that has not been waited for keeps its number, so this never signals another process.
        if self._process_of(rank).poll() is not None:
            return False
        try:
            os.kill(self._pids[rank], number)
        except ProcessLookupError:  # it was forked, and its parent has waited for it
            return False
        return True

    def _process_of(self, rank: int) -> subprocess.Popen[bytes]:
        return self._processes[0 if self.system.forked else rank]

    def _check_alive(self) -> None:
        for rank in range(self.size):
            if self._process_of(rank).poll() is not None:
                raise self._ended(rank)

    def _ended(self, rank: int) -> UserError:
        try:
            status = str(self._process_of(rank).wait(END_LIMIT_S))
        except subprocess.TimeoutExpired:
            status = "unknown"
        return UserError(
            f"Rank {rank} of {self.system.name} on {self._host_of(rank)} ended with status {status}.",
            f"Its last output:\n{self._tail(rank)}",
        )

    def _silent(self, limit_s: float, ranks: set[int]) -> UserError:
        for rank in self._pids:
            self._signal_to(rank, signal.SIGCONT)
            self._signal_to(rank, signal.SIGUSR1)  # it writes every thread's stack into its log
        time.sleep(0.5)
        everyone = range(self.size)
        tails = "\n".join(f"--- rank {rank} on {self._host_of(rank)}:\n{self._tail(rank)}" for rank in everyone)
        named = ", ".join(str(rank) for rank in sorted(ranks))
        return UserError(
            f"No answer from rank {named} of {self.system.name} within {limit_s:g} s.",
            f"Where every rank stands:\n{tails}",
        )

    def _host_of(self, rank: int) -> str:
        return self.hosts.names[rank * len(self.hosts.names) // self.size]

    def _tail(self, rank: int) -> str:
        try:
            return log_path(self.folder, rank).read_text(errors="replace")[-LOG_TAIL:].rstrip() or "(none)"
        except FileNotFoundError:
            return "(none)"


def _short_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder whose path leaves room for a socket's name: the kernel allows 107 bytes."""
    parent = tempfile.gettempdir()
    return tempfile.TemporaryDirectory(
        prefix="paceline-bench-", dir=parent if len(os.fsencode(parent)) < 70 else "/tmp"
    )


def _state(pid: int) -> str:
    """Return the state letter of a process; "" if it has ended."""
    try:
        # The program's name is in parentheses and may contain some.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
