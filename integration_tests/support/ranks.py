"""Run a test body on n ranks: the body is the program of one rank.

    import horovod.torch as hvd

    @ranks(2, 3)
    def test_sum(rank, size):
        assert hvd.allreduce(torch.tensor([rank]), op=hvd.Sum).item() == size * (size - 1) / 2

The module named `hvd` in a test module is initialised before each of its bodies. pytest sees one case per number of
ranks; `@ranks(2, 3, more=(5, 7))` adds the cases of `make test-more`. The body runs in real processes that communicate
over loopback, as `horovodrun` would start them. Importing a framework takes seconds. So processes are forked from one
that has imported it (forks.py; `--no-forks`: each starts by itself). They are kept for the next test with the same
world (number of ranks, environment). A world is ended if a body failed in it or the test asked for its own
(`fresh=True`). A body that does not finish in `timeout_s` is a failure that shows the stacks of every rank.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import debug
from integration_tests.support.forks import Process, end_templates, forkable, frameworks_of, template

ROOT = Path(__file__).resolve().parents[2]
# Limits of hangs: a busy machine takes a multiple of an idle one's time.
START_TIMEOUT_S = 120.0
TIMEOUT_S = 150.0
# For a rank stopped while it waited, the time counts too: Gloo's limit is 30 s.
MAX_PAUSE_S = 20.0
# More ranks are too slow on two cores: their tests take minutes.
MORE_RANKS = 4
# Number of worlds kept for tests that alternate; each holds some 100 MB.
KEPT_WORLDS = 4
# True: ranks are forked where possible; `--no-forks` switches it off.
forks = True


class RankFailed(AssertionError):
    """At least one rank raised, died or hung; the text has the report of every rank."""


class World:
    """`size` processes on this machine that find each other through one rendezvous server.

    `frameworks`: imported by the processes from the start. Empty: they start one by one, with nothing imported.
    """

    def __init__(self, size: int, env: Mapping[str, str], frameworks: tuple[str, ...] = ()) -> None:
        from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
        from horovod.runner.gloo_run import create_run_env_vars, create_slot_env_vars
        from horovod.runner.http.http_server import RendezvousServer

        self.size = size
        self._paused_at: float | None = None
        self._dir = tempfile.TemporaryDirectory(prefix="ranks-")
        self._rendezvous = RendezvousServer()
        port = self._rendezvous.start()
        plan = get_host_assignments(parse_hosts(f"localhost:{size}"), size)
        self._rendezvous.init(plan)
        listener = Listener(str(Path(self._dir.name) / "socket"))
        # A plan stays, even a deliberately slow one, and groups wait for busy ranks, unless a test sets it otherwise.
        values = ["fusion_trial_steps=0", "gate_timeout_ms=5000", env.get(debug.NAME)]
        env = {**env, debug.NAME: ",".join(filter(None, values))}
        own = {
            # A test may override the installed Horovod with another build.
            "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)])),
            "PYTHONUNBUFFERED": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
        forked = forks and frameworks and forkable(env)
        source = template(frameworks, {**os.environ, **own, **env}) if forked else None
        self._processes: list[Process] = []
        for slot in plan:
            slot_env = {
                **os.environ,
                **{key: str(value) for key, value in create_run_env_vars("127.0.0.1", ["lo"], port).items()},
                **create_slot_env_vars(slot),
                **own,
                **env,
            }
            log = self._log(slot.rank)
            if source is not None:
                self._processes.append(source.fork(str(listener.address), slot.rank, slot_env, log))
            else:
                self._processes.append(_started(str(listener.address), slot.rank, slot_env, log))
        self._connections = self._accept(listener)
        listener.close()

    def _log(self, rank: int) -> Path:
        return Path(self._dir.name) / f"rank{rank}.log"

    def _accept(self, listener: Listener) -> dict[int, Connection]:
        # Listener has no timeout of its own; a worker that dies at start must not leave us waiting.
        listener._listener._socket.settimeout(START_TIMEOUT_S)  # type: ignore[attr-defined]
        connections: dict[int, Connection] = {}
        try:
            while len(connections) < self.size:
                connection = listener.accept()
                connections[connection.recv()] = connection
        except OSError as error:
            report = self.report({})
            self.end()
            raise RankFailed(f"only {len(connections)} of {self.size} ranks started: {error}\n{report}") from error
        return connections

    def run(self, module: str, body: str, args: tuple[Any, ...], timeout_s: float, grace_s: float = 5) -> list[Any]:
        """Run `body` of `module` on every rank as body(rank, size, *args); return the results by rank.

        Once a rank has failed, the others have `grace_s` to answer.
        """
        self.send(module, body, args)
        answers = self.answers(timeout_s, grace_s)
        if len(answers) < self.size or any(kind != "ok" for kind, _ in answers.values()):
            raise RankFailed(self.report(answers, timeout_s))
        return [answers[rank][1] for rank in range(self.size)]

    def send(self, module: str, body: str, args: tuple[Any, ...]) -> None:
        """Start `body` on every rank."""
        for rank, connection in self._connections.items():
            connection.send((module, body, (rank, self.size, *args)))

    def answers(self, timeout_s: float, grace_s: float = 5, without: Container[int] = ()) -> dict[int, tuple[str, Any]]:
        """Answers in time, by rank: "ok" and a result, "raised" and a traceback, "died" and a status.

        Once a rank has failed, the others have `grace_s` to answer. Ranks in `without` are ignored.
        """
        answers: dict[int, tuple[str, Any]] = {}
        waited = [(rank, connection) for rank, connection in self._connections.items() if rank not in without]
        deadline = time.monotonic() + timeout_s
        while len(answers) < len(waited) and time.monotonic() < deadline:
            for rank, connection in waited:
                if rank in answers:
                    continue
                try:
                    if connection.poll(0.01):
                        answers[rank] = connection.recv()
                except (EOFError, ConnectionError):
                    answers[rank] = ("died", self._processes[rank].wait(10))
            if any(kind != "ok" for kind, _ in answers.values()):
                # The others may now wait for the failed rank: leave them a moment to notice, not the whole limit.
                deadline = min(deadline, time.monotonic() + grace_s)
        return answers

    def kill(self, rank: int) -> None:
        """Kill the process of one rank (SIGKILL)."""
        self._processes[rank].kill()

    def report(self, answers: Mapping[int, tuple[str, Any]], timeout_s: float = 0.0) -> str:
        """Report of every rank; ranks without an answer show their stacks."""
        for rank in set(range(len(self._processes))) - set(answers):
            # The worker prints the stack of every thread into its log on this signal.
            self._processes[rank].send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        lines = []
        for rank in range(len(self._processes)):
            kind, value = answers.get(rank, ("hung", f"no answer within {timeout_s:g} s"))
            lines.append(f"--- rank {rank}: {kind}")
            if kind != "ok":
                lines.append(str(value))
                lines.append(self._log(rank).read_text(errors="replace")[-6000:])
        return "\n".join(lines)

    def pause(self) -> None:
        """Stop every process, so that background threads take no CPU; connections stay."""
        self._paused_at = time.monotonic()
        for process in self._processes:
            process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._paused_at = None
        for process in self._processes:
            process.send_signal(signal.SIGCONT)

    @property
    def usable(self) -> bool:
        """True if its ranks would still find each other: none was stopped for longer than the limit."""
        return self._paused_at is None or time.monotonic() - self._paused_at < MAX_PAUSE_S

    def end(self) -> None:
        """End every process of this world and stop its rendezvous server."""
        for process in self._processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait(10)
        threading.Thread(target=self._rendezvous.stop).start()  # its server polls twice a second
        self._dir.cleanup()


def _started(address: str, rank: int, env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a separate process that serves as `rank`."""
    with log.open("wb") as written:
        return subprocess.Popen(
            [sys.executable, "-m", "integration_tests.support.worker", address, str(rank)],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


# Worlds by number of ranks, environment and imported frameworks, the most recently used last.
_kept: dict[tuple[int, tuple[tuple[str, str], ...], tuple[str, ...]], World] = {}


def end_kept_worlds(but: int = 0) -> None:
    """End the kept worlds, except the last `but` of them."""
    while len(_kept) > but:
        _kept.pop(next(iter(_kept))).end()


def end_all() -> None:
    """End all kept worlds, and the templates that ranks are forked from."""
    end_kept_worlds()
    end_templates()


atexit.register(end_all)


def run_ranks(
    body: Callable[..., Any],
    size: int,
    *args: Any,
    env: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
    fresh: bool = False,
    grace_s: float = 5,
) -> list[Any]:
    """Run `body(rank, size, *args)` on `size` ranks and return the results, in the order of ranks.

    Once a rank has failed, the others have `grace_s` to answer. `body` must be a module-level function. Raises
    `RankFailed` with the report of every rank.
    """
    frameworks = frameworks_of(body.__module__)
    key = (size, tuple(sorted((env or {}).items())), frameworks)
    world = None if fresh else _kept.pop(key, None)
    if world is not None and not world.usable:
        world.end()
        world = None
    if world is None:
        end_kept_worlds(but=KEPT_WORLDS - 1)
        world = World(size, env or {}, frameworks)
    else:
        world.resume()
    try:
        results = world.run(body.__module__, body.__qualname__, args, timeout_s, grace_s)
    except BaseException:
        world.end()
        raise
    if fresh:
        world.end()
    else:
        world.pause()  # background threads of idle worlds would slow down the next test
        _kept[key] = world
    return results


def ranks(
    *sizes: int,
    more: Sequence[int] = (),
    soak: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
    fresh: bool = False,
    worlds: Sequence[Any] = (),
    hvd: str = "",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: turn a test body of one rank, called as body(rank, size), into one pytest case per number of ranks.

    Further parameters of the body are pytest's: of `parametrize`, or fixtures whose values can be pickled. `more`:
    numbers of ranks for `make test-more`; those above MORE_RANKS, and those of `soak`, are for `make soak`. They have
    three times the time. `worlds`: variables in addition to `env`, a case each (pytest.param). `hvd`: name of a module
    of Horovod's or ours; the body is called as body(rank, size, hvd) after its init(). Files with tests of several
    frameworks need it: the libraries of two frameworks in one process share virtual symbols.
    """
    cases = [pytest.param(size, id=f"{size}ranks") for size in sizes]
    limit = pytest.mark.timeout(START_TIMEOUT_S + 3 * timeout_s)
    for size in (*more, *soak):
        marks = (pytest.mark.soak if size > MORE_RANKS or size in soak else pytest.mark.more, limit)
        cases.append(pytest.param(size, id=f"{size}ranks", marks=marks))

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        parameters = list(inspect.signature(body).parameters.values())[3 if hvd else 2 :]

        @pytest.mark.parametrize("size", cases)
        def case(size: int, world: Mapping[str, str] | None = None, **arguments: Any) -> None:
            args = (arguments[one.name] for one in parameters)
            run_ranks(
                case,
                size,
                *args,
                env={**(env or {}), **(world or {})},
                timeout_s=timeout_s * (1 if size in sizes else 3),
                fresh=fresh,
            )

        made: Any = functools.update_wrapper(case, body)
        del vars(made)["__wrapped__"]  # pytest would read the body's signature through it
        own = ["size", "world"] if worlds else ["size"]
        of_pytest = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in own]
        of_pytest += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
        made.__signature__ = inspect.Signature(of_pytest)
        made.body, made.hvd = body, hvd
        made.env_key = "fresh" if fresh else str(sorted((env or {}).items()))
        return pytest.mark.parametrize("world", worlds)(made) if worlds else made

    return decorate
