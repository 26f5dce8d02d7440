"""The ranks of one system, which do what they are told and are stopped in between.

Stopped means SIGSTOP. An idle system must use neither processor nor network, and Horovod's background threads exchange
messages every millisecond however idle the program is. Connections survive (the kernel answers for a stopped process);
what does not is a wait inside Gloo whose time runs out meanwhile, so systems set their limits high
(`systems.SILENCE_LIMIT_S`). Starting the ranks anew in each turn would take seconds instead of milliseconds.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from paceline.errors import UserError
from paceline.examples.benchmarks.harness.assignment import Hello
from paceline.examples.benchmarks.harness.crew_rank import log_path

START_LIMIT_S = 120.0
STOP_LIMIT_S = 10.0
END_LIMIT_S = 10.0
LOG_TAIL = 3000

# Starts the ranks' processes, given a folder of their own and the controller's socket: one for each rank in their
# order, or one that starts all of them.
Start = Callable[[str, str], Iterable["subprocess.Popen[bytes]"]]


class Crew:
    """`size` ranks of the system `name`, equally many on each of the hosts `host_names`.

    `begin` starts them, `end` leaves no process behind and may be called in any state. Methods raise UserError with
    the output of the rank in question when one ends, and of all when one does not answer in time.
    """

    def __init__(self, name: str, size: int, host_names: Sequence[str]) -> None:
        self.name = name
        self.size = size
        self._host_names = tuple(host_names)
        self._dir: tempfile.TemporaryDirectory[str] | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: dict[int, Connection] = {}
        self._pids: dict[int, int] = {}

    def begin(self, start: Start) -> None:
        """Start the ranks; returns when all of them have said Hello."""
        self._dir = _short_folder()
        folder = self.folder
        control = str(Path(folder) / "control")
        # Paths of sockets are seen across emulated hosts, which share the file system: control uses no network.
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(control)
            listener.listen(self.size)
            listener.settimeout(0.1)
            for process in start(folder, control):  # one by one: a later one may fail to start
                self._processes.append(process)
            self._accept(listener)

    @property
    def folder(self) -> str:
        """One that all ranks share and nobody else uses."""
        assert self._dir is not None
        return self._dir.name

    @property
    def pids(self) -> list[int]:
        """The ranks' process ids."""
        return list(self._pids.values())

    def send(self, order: Any) -> None:
        """Tell every rank."""
        for connection in self._connections.values():
            connection.send(order)

    def answers(self, kind: type[Any], limit_s: float) -> list[Any]:
        """One message from every rank, in the order of ranks."""
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
                assert isinstance(answers[rank], kind)
        return [answers[rank] for rank in range(self.size)]

    def go_on(self) -> None:
        """Let stopped ranks continue."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """Stop the ranks; returns when none of them runs any more."""
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + STOP_LIMIT_S
        for rank, pid in self._pids.items():
            while _state(pid) not in ("T", "t"):
                self._check_alive()
                if time.monotonic() > deadline:
                    raise self._silent(STOP_LIMIT_S, {rank})
                time.sleep(0.001)

    def end(self) -> None:
        """Kill the ranks, stopped or not; those that another process has started are asked to leave before."""
        led = len(self._processes) < self.size
        for rank in self._pids if led else ():
            self._signal_to(rank, signal.SIGCONT)
        for connection in self._connections.values():
            connection.close()
        for process in self._processes if led and self._pids else ():
            try:
                process.wait(END_LIMIT_S)
            except subprocess.TimeoutExpired:
                pass
        for rank in self._pids:
            self._signal_to(rank, signal.SIGKILL)
        for process in self._processes:
            if process.poll() is None:
                process.kill()  # also when stopped
        for process in self._processes:
            process.wait(END_LIMIT_S)
        if self._dir is not None:
            self._dir.cleanup()

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

    def _signal(self, number: signal.Signals) -> None:
        for rank in self._pids:
            if not self._signal_to(rank, number):
                raise self._ended(rank)

    def _signal_to(self, rank: int, number: signal.Signals) -> bool:
        """Whether there was a rank to send it to."""
        # A process that we have not waited for keeps its number, so this never hits a stranger.
        if self._process_of(rank).poll() is not None:
            return False
        try:
            os.kill(self._pids[rank], number)
        except ProcessLookupError:  # it was another's child
            return False
        return True

    def _process_of(self, rank: int) -> subprocess.Popen[bytes]:
        return self._processes[rank if len(self._processes) == self.size else 0]

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
            f"Rank {rank} of {self.name} on {self._host_of(rank)} ended with status {status}.",
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
            f"No answer from rank {named} of {self.name} within {limit_s:g} s.",
            f"Where every rank stands:\n{tails}",
        )

    def _host_of(self, rank: int) -> str:
        return self._host_names[rank * len(self._host_names) // self.size]

    def _tail(self, rank: int) -> str:
        try:
            return log_path(self.folder, rank).read_text(errors="replace")[-LOG_TAIL:].rstrip() or "(none)"
        except FileNotFoundError:
            return "(none)"


def _short_folder() -> tempfile.TemporaryDirectory[str]:
    """A temporary folder whose path leaves room for a socket's name: the kernel takes 107 bytes."""
    parent = tempfile.gettempdir()
    return tempfile.TemporaryDirectory(
        prefix="paceline-bench-", dir=parent if len(os.fsencode(parent)) < 70 else "/tmp"
    )


def _state(pid: int) -> str:
    """The state letter of a process; "" if it is gone."""
    try:
        # The program's name is in parentheses and may itself contain some.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


Crewed = TypeVar("Crewed", bound="HasCrew")


class HasCrew(ABC):
    """A context manager that leaves no process behind: entering starts the ranks of `crew`, has them get ready and
    stops them. Raises UserError as Crew.
    """

    crew: Crew

    def __enter__(self: Crewed) -> Crewed:
        try:
            self.crew.begin(self._start)
            self._get_ready()
            self.crew.stop()
        except BaseException:
            self.crew.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.crew.end()

    @abstractmethod
    def _start(self, folder: str, control: str) -> Iterable[subprocess.Popen[bytes]]:
        """What Crew.begin starts."""

    @abstractmethod
    def _get_ready(self) -> None:
        """Hear what the ranks say first."""
