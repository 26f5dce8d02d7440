"""The ranks of one system, which run when told to and are stopped in between.

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
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any

from paceline.errors import UserError
from paceline.launch.benchmarks import warm_up
from paceline.launch.benchmarks.assignment import Assignment, Hello, Measured, Ready, Run, WarmUp
from paceline.launch.benchmarks.hosts import Hosts
from paceline.launch.benchmarks.merging import Merging
from paceline.launch.benchmarks.rank import log_path
from paceline.launch.benchmarks.systems import System
from paceline.launch.benchmarks.team_run import TeamRun, per_step

START_LIMIT_S = 120.0
READY_LIMIT_S = 600.0
RUN_LIMIT_S = 120.0
STOP_LIMIT_S = 10.0
END_LIMIT_S = 10.0
SETTLE_STEPS = 1  # ranks continue at slightly different moments; one step brings them together
LOG_TAIL = 3000


class Team:
    """`size` ranks of one system on `hosts`; a context manager that leaves no process behind.

    Entering starts and warms up the ranks and stops them. `step_s` is what a step took last. `tell` hears in a line
    what goes on while that lasts. Raises UserError with the output of the rank in question when one ends, and of all
    when one does not answer in time; also when a system that merges by plan comes to none.
    """

    def __init__(
        self, system: System, model: str, size: int, hosts: Hosts, tell: Callable[[str], None] = lambda text: None
    ) -> None:
        self.system = system
        self.step_s = 0.0
        self._merging: list[Merging] = []
        self._tell = tell
        self._model = model
        self._size = size
        self._hosts = hosts
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: dict[int, Connection] = {}
        self._pids: dict[int, int] = {}

    def __enter__(self) -> Team:
        self._dir = _short_folder()
        try:
            self._start()
            self._until_active(self._ready(READY_LIMIT_S))
            self._stop()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def run(self, steps: int) -> TeamRun:
        """Let the ranks make `steps` measured steps and stop them again.

        Ranks that have begun to plan anew (their costs have changed) come to a plan before they are measured.
        """
        self._signal(signal.SIGCONT)
        if not all(one.active for one in self._merging):
            self._until_active([Ready(self.step_s, one) for one in self._merging])
        before = self._hosts.traffic()
        # Of gradients that travel during later steps, many arrived while the ranks were being stopped. Steps would not
        # wait for communication as in a long run until as much is on its way again, so this is brought about at once.
        run = Run(self.system.age, SETTLE_STEPS, steps)
        made = run.fill + run.settle + run.steps
        self._send(run)
        measured = self._answers(Measured, self._limit_s(made))
        self._stop()
        after = self._hosts.traffic()
        done = TeamRun(steps, measured, per_step(before, after, made))
        self.step_s = done.step_ms / 1e3
        self._merging = warm_up.mergings(measured)
        warm_up.check_not_refused(self.system.name, self._merging)
        return done

    def _until_active(self, ready: list[Ready]) -> None:
        ready = warm_up.until_active(self.system.name, ready, self._warm_up, self._tell)
        self._merging = warm_up.mergings(ready)

    def _warm_up(self, order: WarmUp) -> list[Ready]:
        self._send(order)
        return self._ready(self._limit_s(order.steps + order.check))

    def _ready(self, limit_s: float) -> list[Ready]:
        ready = self._answers(Ready, limit_s)
        self.step_s = max(answer.step_s for answer in ready)
        return ready

    def _send(self, order: WarmUp | Run) -> None:
        for connection in self._connections.values():
            connection.send(order)

    def _limit_s(self, steps: int) -> float:
        """How long `steps` steps may take. Generous: a machine that other work slows down tenfold is no failure."""
        return RUN_LIMIT_S + 10 * self.step_s * steps

    def _start(self) -> None:
        folder = self._dir.name
        control = str(Path(folder) / "control")
        # Paths of sockets are seen across emulated hosts, which share the file system: control uses no network.
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(control)
            listener.listen(self._size)
            listener.settimeout(0.1)
            for rank in range(self._size):
                assignment = Assignment(
                    self.system.setup,
                    self.system.averages,
                    self.system.age,
                    self._model,
                    rank,
                    self._size,
                    self._hosts.names,
                    self._hosts.addresses,
                    folder,
                    control,
                )
                argv = [sys.executable, "-m", "paceline.launch.benchmarks.rank", assignment.to_json()]
                env = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **self.system.env}
                self._processes.append(self._hosts.start(argv, assignment.host, env))
            self._accept(listener)

    def _accept(self, listener: socket.socket) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while len(self._connections) < self._size:
            try:
                accepted, _ = listener.accept()
            except TimeoutError:
                self._check_alive()
                if time.monotonic() > deadline:
                    raise self._silent(START_LIMIT_S, set(range(self._size)) - set(self._connections)) from None
                continue
            connection = Connection(accepted.detach())
            hello = connection.recv()
            assert isinstance(hello, Hello)
            self._connections[hello.rank] = connection
            self._pids[hello.rank] = hello.pid

    def _answers(self, kind: type[Any], limit_s: float) -> list[Any]:
        """One message from every rank, in the order of ranks."""
        answers: dict[int, Any] = {}
        ranks = {connection: rank for rank, connection in self._connections.items()}
        deadline = time.monotonic() + limit_s
        while len(answers) < self._size:
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
        return [answers[rank] for rank in range(self._size)]

    def _signal(self, number: signal.Signals) -> None:
        for rank, pid in self._pids.items():
            # A process that we have not waited for keeps its number, so this never hits a stranger.
            if self._processes[rank].poll() is not None:
                raise self._ended(rank)
            os.kill(pid, number)

    def _stop(self) -> None:
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + STOP_LIMIT_S
        for rank, pid in self._pids.items():
            while _state(pid) not in ("T", "t"):
                self._check_alive()
                if time.monotonic() > deadline:
                    raise self._silent(STOP_LIMIT_S, {rank})
                time.sleep(0.001)

    def _check_alive(self) -> None:
        for rank, process in enumerate(self._processes):
            if process.poll() is not None:
                raise self._ended(rank)

    def _ended(self, rank: int) -> UserError:
        try:
            status = str(self._processes[rank].wait(END_LIMIT_S))
        except subprocess.TimeoutExpired:
            status = "unknown"
        return UserError(
            f"Rank {rank} of {self.system.name} on {self._host_of(rank)} ended with status {status}.",
            f"Its last output:\n{self._tail(rank)}",
        )

    def _silent(self, limit_s: float, ranks: set[int]) -> UserError:
        for rank, pid in self._pids.items():
            if self._processes[rank].poll() is None:
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGUSR1)  # it writes every thread's stack into its log
        time.sleep(0.5)
        everyone = range(self._size)
        tails = "\n".join(f"--- rank {rank} on {self._host_of(rank)}:\n{self._tail(rank)}" for rank in everyone)
        named = ", ".join(str(rank) for rank in sorted(ranks))
        return UserError(
            f"No answer from rank {named} of {self.system.name} within {limit_s:g} s.",
            f"Where every rank stands:\n{tails}",
        )

    def _host_of(self, rank: int) -> str:
        return self._hosts.names[rank * len(self._hosts.names) // self._size]

    def _tail(self, rank: int) -> str:
        try:
            return log_path(self._dir.name, rank).read_text(errors="replace")[-LOG_TAIL:].rstrip() or "(none)"
        except FileNotFoundError:
            return "(none)"

    def _end(self) -> None:
        for connection in self._connections.values():
            connection.close()
        for process in self._processes:
            if process.poll() is None:
                process.kill()  # also when stopped
        for process in self._processes:
            process.wait(END_LIMIT_S)
        self._dir.cleanup()


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
