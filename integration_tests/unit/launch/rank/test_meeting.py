"""Rank 0's hub and the tasks that come to it, over loopback: all meet, or everybody is told why not."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from paceline.errors import UserError
from paceline.launch.failures.verdict import Verdict
from paceline.launch.rank import hub, identity, member
from paceline.launch.rank.channel import Channel
from paceline.launch.rank.identity import Given, Identity
from paceline.launch.rank.messages import Start

JOB = "a test's"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (hub, member):
        monkeypatch.setattr(module, "PATIENCE_S", 0.5)
        monkeypatch.setattr(module, "TELL_S", (0.3, 0.6))
    monkeypatch.setattr(hub, "SETTLE_S", 0.3)
    monkeypatch.setattr(member, "MARGIN_S", 1.0)


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
    return number


def task(rank: int, size: int, port: int, job: str = JOB, host: str = "localhost") -> Identity:
    return Identity(rank, size, None, job, (host,), port, "test")


@contextmanager
def hub_of(size: int, port: int, limit_s: float = 20, job: str = JOB) -> Iterator[hub.Hub]:
    centre = hub.Hub(size, job, limit_s, lambda slots: 4321)
    centre.start(hub.bind(port, job))
    try:
        yield centre
    finally:
        centre.stop()


def meet(*tasks: Identity, limit_s: float = 20) -> list[Any]:
    """What each came to: its channel and start, or the error."""

    def one(who: Identity) -> tuple[Channel, Start] | UserError:
        try:
            return member.join(who, limit_s, said.append)
        except UserError as error:
            return error

    said: list[str] = []
    with ThreadPoolExecutor(len(tasks)) as pool:
        return [*pool.map(one, tasks), said]


def test_who_is_missing_is_told_to_all(port: int) -> None:
    with hub_of(4, port, limit_s=1.0):
        first, second, said = meet(task(0, 4, port), task(2, 4, port))
    for error in (first, second):
        assert "Of 4 ranks 2 have come within 1 s. Missing: ranks 1, 3." in error.problem
        assert f"0 on {socket.gethostname()}, 2 on {socket.gethostname()}" in error.problem
        assert "--wait" in error.remedy
    assert any("waits for ranks 1, 3 since" in line and "2 of 4 are there" in line for line in said)


@pytest.mark.parametrize(
    ("second", "problem", "remedy"),
    [((1, 3), "counts 3 ranks, rank 0", "--size"), ((0, 2), "is there twice", "--dry-run")],
)
def test_tasks_that_contradict_each_other_end_all(
    port: int, second: tuple[int, int], problem: str, remedy: str
) -> None:
    with hub_of(2, port):
        *errors, _ = meet(task(0, 2, port), task(*second, port))
    for error in errors:
        assert problem in error.problem
        assert remedy in error.remedy


def test_another_job_and_another_secret_on_the_port(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with hub_of(2, port, job="another"):
        error, _ = meet(task(1, 2, port))
    assert "is taken: job" in error.problem and "belongs to another job" in error.problem
    assert "--rendezvous" in error.remedy
    monkeypatch.setenv("_HOROVOD_SECRET_KEY", "ours")
    with hub_of(2, port):
        with pytest.raises(UserError) as raised:
            hub.bind(port, "the second")
        assert f"cannot listen on port {port}" in raised.value.problem and "the second" in raised.value.problem
        assert "--rendezvous HOST:PORT" in raised.value.remedy
        monkeypatch.setenv("_HOROVOD_SECRET_KEY", "theirs")
        error, _ = meet(task(1, 2, port))
    assert "another secret" in error.problem and "_HOROVOD_SECRET_KEY" in error.problem


def test_another_program_on_the_port(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as server:

        def answer() -> None:
            with contextlib.suppress(OSError):  # until the server is shut down
                while True:
                    connection, _ = server.accept()
                    connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
                    connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        error, _ = meet(task(1, 2, port), limit_s=0.5)
        server.shutdown(socket.SHUT_RDWR)
        thread.join(20)
    assert "another program's" in error.problem and "HTTP/1.0 400" in error.problem


def test_nobody_answers(port: int) -> None:
    environ = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    error, said = meet(replace(identity.find(environ, Given()), port=port), limit_s=1.0)
    assert f"Rank 1 on {socket.gethostname()} has not found rank 0 within 1 s" in error.problem
    assert "Rank 0's host is known from MASTER_ADDR=127.0.0.1." in error.problem
    assert "firewall" in error.remedy and "--wait" in error.remedy
    assert "waits for rank 0 since" in said[0] and "nobody listens on 127.0.0.1" in said[0] and "(limit 1 s)" in said[0]


def test_a_host_that_is_unknown_or_resolves_to_loopback(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any) -> None:  # no question leaves this machine
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    error, _ = meet(task(1, 2, port, host="n7"), limit_s=0.5)
    assert "n7: this name is unknown (Name or service not known)" in error.problem
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *more: real("127.0.1.1" if host == "n7" else host, *more))
    error, _ = meet(task(1, 2, port, host="n7"), limit_s=20)
    assert f"n7 resolves to loopback on this host, {socket.gethostname()}" in error.problem
    assert "network address" in error.remedy


def test_a_task_that_vanishes_is_a_failure(port: int) -> None:
    with hub_of(2, port) as centre:
        *met, _ = meet(task(0, 2, port), task(1, 2, port))
        error, _ = meet(task(1, 2, port))  # again, which does not end the job
        assert met[0][0].receive(0.5) is None
        assert "All 2 ranks of this job are there, and it has begun." in error.problem
        assert "expected" not in error.problem, "it is the same job"
        met[1][0].close()
        verdict = met[0][0].receive(10)
        assert centre.running() == []
    assert isinstance(verdict, Verdict)
    assert "its task was killed or its host died" in verdict.errors[0][0]


def test_a_task_that_leaves_before_the_start(port: int) -> None:
    with hub_of(3, port):
        connection = socket.create_connection(("127.0.0.1", port))
        channel = Channel(connection)
        member._introduce(channel, task(2, 3, port))
        timer = threading.Timer(0.5, channel.close)
        timer.start()
        error, _ = meet(task(0, 3, port))
        timer.join()
    assert f"Rank 2 on {socket.gethostname()} left before all 3 ranks were there" in error.problem
