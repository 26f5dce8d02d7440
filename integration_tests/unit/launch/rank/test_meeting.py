"""Tasks that become ranks: identity, hosts of the job, place, and rendezvous."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec import structs

from integration_tests.support import tasks
from paceline.errors import UserError
from paceline.launch.failures.verdict import Verdict
from paceline.launch.rank import hostlists, hub, identity, interfaces, member, messages, rendezvous, schedulers
from paceline.launch.rank.channel import Channel
from paceline.launch.rank.identity import Given, Identity
from paceline.launch.rank.messages import Start
from paceline.launch.rank.placement import Task, place

JOB = "a test's"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (hub, member):
        monkeypatch.setattr(module, "PORT_TIMEOUT_S", 0.5)
        monkeypatch.setattr(module, "REPORT_S", (0.3, 0.6))
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
def hub_of(
    size: int, port: int, limit_s: float = 20, job: str = JOB, said: list[str] | None = None
) -> Iterator[hub.Hub]:
    lines: list[str] = [] if said is None else said
    centre = hub.Hub(size, job, limit_s, lambda *_: 4321, lines.append)
    centre.start(hub.bind("127.0.0.1", port, job))
    try:
        yield centre
    finally:
        centre.stop()


def meet(*tasks: Identity, limit_s: float = 20) -> list[Any]:
    """Results of the tasks: channel and start, or the error; last the printed lines."""

    def one(who: Identity) -> tuple[Channel, Start] | UserError:
        try:
            return member.join(who, limit_s, said.append)
        except UserError as error:
            return error

    said: list[str] = []
    with ThreadPoolExecutor(len(tasks)) as pool:
        return [*pool.map(one, tasks), said]


def test_who_is_missing_is_reported_to_all(port: int) -> None:
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
def test_tasks_that_contradict_end_all(port: int, second: tuple[int, int], problem: str, remedy: str) -> None:
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
    said: list[str] = []
    with hub_of(2, port, said=said):
        with pytest.raises(UserError) as raised:
            hub.bind("127.0.0.1", port, "the second")
        assert f"cannot listen on port {port}" in raised.value.problem and "the second" in raised.value.problem
        assert "--rendezvous HOST:PORT" in raised.value.remedy
        monkeypatch.setenv("_HOROVOD_SECRET_KEY", "theirs")
        error, _ = meet(task(1, 2, port))
    here = socket.gethostname()
    assert f"Rank 1 on {here} was refused by rank 0 on 127.0.0.1: this task has another _HOROVOD_" in error.problem
    assert "the same _HOROVOD_SECRET_KEY, or none" in error.remedy
    assert said == [
        f"Rank 0 refused a task on 127.0.0.1, which calls itself rank 1 on {here}: it has another job or another "
        "_HOROVOD_SECRET_KEY."
    ]


def test_a_stranger_is_refused_and_reported_once(port: int) -> None:
    """A connection without a proof gets a challenge and no more."""
    said: list[str] = []
    with hub_of(2, port, said=said):
        answers = []
        http_text = b"GET / HTTP/1.1\r\n\r\n"
        for line in (http_text, b"", messages.encode(messages.Welcome("0" * 64)), http_text):
            with socket.create_connection(("127.0.0.1", port), 10) as connection:
                connection.settimeout(10)
                connection.sendall(line)
                connection.shutdown(socket.SHUT_WR)
                text = b""
                while got := connection.recv(65536):
                    text += got
            answers.append([type(messages.decode(one)) for one in text.splitlines()])
        *met, _ = meet(task(0, 2, port), task(1, 2, port))  # the job is unharmed
    challenge, refused = messages.Challenge, messages.Refused
    assert answers == [[challenge], [challenge], [challenge, refused], [challenge]]
    assert [type(start) for _, start in met] == [Start, Start]
    assert said == [
        "Rank 0 refused a program on 127.0.0.1, which is not `paceline rank`.",
        "Rank 0 refused a task on 127.0.0.1: it has another job or another _HOROVOD_SECRET_KEY.",
    ]


def test_rank_0_listens_where_all_tasks_connect() -> None:
    own = next(
        (one.address for entries in psutil.net_if_addrs().values() for one in entries
         if one.family == socket.AF_INET and not interfaces.is_loopback(one.address)), "127.0.0.1",
    )  # fmt: skip
    for hosts, expected in (
        (("localhost",), "127.0.0.1"),
        (("127.0.0.1", "localhost"), "127.0.0.1"),
        ((own,), own),
        (("192.0.2.1",), ""),  # of no interface here: a translated address
        ((socket.gethostname(),), ""),
        (("localhost", "192.0.2.1"), ""),
    ):
        assert interfaces.to_listen_on(hosts) == expected, hosts
    # Gloo on loopback: no other host can take part.
    found = identity.find({"HOROVOD_GLOO_IFACE": "lo"}, Given(rank=1, size=2, rendezvous="node7:4000"))
    assert (found.hosts, found.port) == (("127.0.0.1",), 4000)


def test_horovods_rendezvous_answers_only_hosts_of_the_jobs_tasks() -> None:
    """Both sides on loopback of this host: `clients` decides for addresses that are not loopback."""
    said: list[str] = []
    server = rendezvous.Rendezvous(said.append)
    slots = place([Task(0, "a", "m")])
    port = server.serve(slots, "127.0.0.1", frozenset())
    url = f"http://127.0.0.1:{port}/scope/key"
    put = urllib.request.Request(url, b"value", method="PUT")
    head = urllib.request.Request(f"http://127.0.0.1:{port}/", method="HEAD")
    try:
        urllib.request.urlopen(put, timeout=10).close()
        assert urllib.request.urlopen(url, timeout=10).read() == b"value"
        with pytest.raises(urllib.error.HTTPError, match="405"):  # no names of files
            urllib.request.urlopen(head, timeout=10)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(interfaces, "is_loopback", lambda address: False)
            for request in (url, put):
                with pytest.raises(OSError) as raised:  # the connection ends, perhaps while the request is sent
                    urllib.request.urlopen(request, timeout=10)
                assert not isinstance(raised.value, urllib.error.HTTPError), "an answer"
    finally:
        server._server.stop()
    assert len(said) == 1 and "refused 127.0.0.1: no task of this job" in said[0] and "--network host" in said[0]


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
    def unknown(*_: Any) -> None:  # no query leaves this machine
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


def given(flags: str, rank: int, size: int) -> Given:
    words = flags.format(rank=rank, size=size, port=29400).split()
    values: dict[str, Any] = dict(zip((word[2:] for word in words[::2]), words[1::2]))
    values |= {name: int(values[name]) for name in ("rank", "size") if name in values}
    return Given(**values)


@pytest.mark.parametrize("name", tasks.TASKS)
def test_every_scheduler_identifies_its_tasks(name: str) -> None:
    variables, flags = tasks.TASKS[name]
    found = [identity.find(variables(rank, 4), given(flags, rank, 4)) for rank in range(4)]
    assert [(one.rank, one.size) for one in found] == [(rank, 4) for rank in range(4)]
    # All tasks look for rank 0 in one place, and recognise it as their own job's.
    assert len({(one.hosts, one.port, one.job) for one in found}) == 1
    assert found[0].hosts[0] in ("localhost", "127.0.0.1")
    tried = {identity.find(make(1, 2), given(flags, 1, 2)).source for make, flags in tasks.TASKS.values()}
    assert tried == {one.title for one in schedulers.SCHEDULERS} | {"flags"}


def test_jobs_have_names_and_ports_and_local_ranks_are_the_schedulers() -> None:
    one = tasks.slurm(0, 2)
    others = [{**one, "SLURM_JOB_ID": "4712"}, {**one, "SLURM_STEP_ID": "1"}, {**one, "SLURM_RESTART_COUNT": "1"}]
    found = [identity.find(environ, Given()) for environ in (one, *others)]
    assert len({task.job for task in found}) == len({task.port for task in found}) == 4
    # Local ranks are the scheduler's, and variables of the launcher are ignored.
    environ = {**tasks.slurm(3, 4), "SLURM_LOCALID": "1"}
    assert identity.find(environ, Given()).local_rank == 1
    assert identity.find(tasks.blaunch(3, 4), Given()).local_rank is None
    daemons = identity.find(tasks.openmpi_daemons_by_srun(3, 4), Given())
    assert (daemons.rank, daemons.size, daemons.source) == (3, 4, "Open MPI (mpirun)")
    assert "set aside" in daemons.notes[0] and "SLURM_PROCID=0" in daemons.notes[0]


def test_flags_win_and_variables_that_name_the_host_of_rank_0_are_known() -> None:
    found = identity.find(tasks.slurm(1, 2), Given(rendezvous="node7:4000"))
    assert (found.rank, found.hosts, found.port) == (1, ("node7",), 4000)
    assert found.hosts_from == "--rendezvous node7:4000"
    found = identity.find(tasks.slurm(1, 2), Given(rank=0, size=3, rendezvous="node7:4000"))
    assert (found.rank, found.size, found.source) == (0, 3, "flags")
    # Variables with the host of rank 0 are reported.
    torchrun = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "n3", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "x"}
    found = identity.find({**tasks.slurm(0, 1), **torchrun}, Given())
    assert (found.hosts, found.hosts_from) == (("n3",), "MASTER_ADDR=n3")
    found = identity.find({**tasks.slurm(1, 2), "SLURM_STEP_NODELIST": "a,b", "SLURM_JOB_NODELIST": "a,b,c"}, Given())
    assert (found.hosts, found.hosts_from) == (("a", "b"), "SLURM_STEP_NODELIST=a,b")


def test_the_pod_with_index_0_is_in_the_same_subdomain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "digits-2")
    monkeypatch.setattr(socket, "getfqdn", lambda _: "digits-2.workers.default.svc.cluster.local")
    found = identity.find(tasks.kubernetes(2, 4), Given(size=4))
    assert found.hosts == ("digits-0.workers.default.svc.cluster.local",)
    monkeypatch.setattr(socket, "gethostname", lambda: "digits-0")
    monkeypatch.setattr(socket, "getfqdn", lambda _: "digits-0.workers.default.svc.cluster.local")
    assert identity.find(tasks.kubernetes(0, 4), Given(size=4)).job == found.job


REFUSED: dict[str, tuple[dict[str, str], Given, str, str]] = {
    # name: (variables, flags, part of the problem, part of the remedy)
    "unknown scheduler": ({"MY_RANK": "3"}, Given(), "No scheduler's variables", "--rank R --size N"),
    "script of sbatch": (
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "1"},
        Given(),
        "SLURM_PROCID is set without SLURM_STEP_ID",
        "srun -n 4 paceline rank",
    ),
    "two schedulers": (
        {**tasks.slurm(1, 4), "RANK": "0", "WORLD_SIZE": "1"},
        Given(),
        "torchrun says rank 0 of 1 (RANK=0, WORLD_SIZE=1), but Slurm (srun) says rank 1 of 4",
        "--scheduler",
    ),
    "not its task": (tasks.slurm(0, 2), Given(scheduler="openmpi"), "OMPI_COMM_WORLD_RANK is not set", "once per task"),
    "no number": ({**tasks.slurm(0, 2), "SLURM_PROCID": "two"}, Given(), "SLURM_PROCID=two", "Leave the"),
    "rank beyond": ({**tasks.slurm(0, 2), "SLURM_PROCID": "2"}, Given(), "rank 2 of 2 cannot be", "without holes"),
    "negative": ({}, Given(rank=-1, size=2), "--rank -1 --size 2", "without holes"),
    "LSF numbers from 1": ({**tasks.blaunch(0, 2), "LSF_PM_TASKID": "0"}, Given(), "rank -1 of 2", "without holes"),
    "no size": (tasks.kubernetes(1, 2), Given(), "nothing tells how many ranks", "--size N"),
    "no size either": ({}, Given(rank=1), "--rank 1, but nothing tells how many", "--size N"),
    "no host": ({}, Given(rank=1, size=2), "tells this task on which host rank 0 runs", "--rendezvous HOST:PORT"),
    "no host of PBS": (tasks.pbsdsh(1, 2), Given(), "PBS (pbsdsh) does not tell", "--rendezvous HOST:PORT"),
    "port": ({}, Given(rank=1, size=2, rendezvous="node1:http"), "is not HOST:PORT", "node1:29400"),
    "port too large": ({}, Given(rank=1, size=2, rendezvous="node1:70000"), "is not HOST:PORT", "node1:29400"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_with_a_remedy(name: str) -> None:
    environ, flags, problem, remedy = REFUSED[name]
    with pytest.raises(UserError) as raised:
        identity.find(environ, flags)
    assert problem in raised.value.problem
    assert remedy in raised.value.remedy


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node1", ["node1"]),
        ("node[08-10,12]", ["node08", "node09", "node10", "node12"]),
        ("gpu[1,3]-ib,login", ["gpu1-ib", "gpu3-ib", "login"]),
        ("r[1-2]n[0-1]", ["r1n0", "r1n1", "r2n0", "r2n1"]),
        ("a,b", ["a", "b"]),
        ("", []),
        ("node[00000-99999]", [f"node{number:05}" for number in range(hostlists.MOST)]),
    ],
)
def test_compact_lists_of_slurm(text: str, hosts: list[str]) -> None:
    assert hostlists.expand(text) == hosts


@pytest.mark.parametrize(
    ("environ", "hosts"),
    [
        ({"LSB_MCPU_HOSTS": "batch2 1 h22n07 42 h22n08 42"}, ["h22n07", "h22n08", "batch2"]),
        ({"LSB_MCPU_HOSTS": "a 2 b 2"}, ["a", "b"]),
        ({"LSB_MCPU_HOSTS": "a 1 b 1"}, ["a", "b"]),
        ({"LSB_MCPU_HOSTS": "a 1"}, ["a"]),
        ({"LSB_HOSTS": "a a b"}, ["a", "b"]),
        ({}, []),
    ],
)
def test_hosts_of_lsf(environ: dict[str, str], hosts: list[str]) -> None:
    assert hostlists.lsf(environ) == hosts


def test_hosts_of_pbs_and_of_open_mpi(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("a\na\nb\n")
    assert hostlists.pbs({"PBS_NODEFILE": str(tmp_path / "nodes")}) == ["a", "b"]
    assert hostlists.pbs({"PBS_NODEFILE": str(tmp_path / "elsewhere")}) == []
    # Open MPI: hosts of the batch system, and mpirun's own address.
    uri = {"OMPI_MCA_orte_hnp_uri": "2383740928.0;tcp://10.0.0.1,192.168.1.1:39711"}
    assert hostlists.open_mpi(uri) == ["10.0.0.1", "192.168.1.1"]
    assert hostlists.open_mpi({**uri, "SLURM_JOB_NODELIST": "n[1-2]"}) == ["n1", "n2", "10.0.0.1", "192.168.1.1"]


@pytest.mark.parametrize("slots", [[1], [3], [2, 2], [1, 3], [2, 1, 3]])
def test_places_are_horovods_where_ranks_fill_one_host_after_the_other(slots: list[int]) -> None:
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts

    size = sum(slots)
    theirs = get_host_assignments(parse_hosts(",".join(f"h{at}:{n}" for at, n in enumerate(slots))), size)
    hosts = [f"h{at}" for at, n in enumerate(slots) for _ in range(n)]
    ours = place([Task(rank, host, "m") for rank, host in enumerate(hosts)][::-1])
    assert [structs.asdict(slot) for slot in ours] == [vars(slot) for slot in theirs]


def test_other_orders_local_ranks_and_hosts_of_one_name() -> None:
    slots = place([Task(rank, f"h{rank % 2}", "m") for rank in range(5)])
    places = [(one.local_rank, one.local_size, one.cross_rank, one.cross_size) for one in slots]
    assert places == [(0, 3, 0, 2), (0, 2, 1, 2), (1, 3, 0, 2), (1, 2, 1, 2), (2, 3, 0, 1)]
    # The scheduler's local ranks count if they are complete; in two containers on one host each is 0 to its runtime.
    assert [slot.local_rank for slot in place([Task(0, "a", "m", 1), Task(1, "a", "m", 0)])] == [1, 0]
    assert [slot.local_rank for slot in place([Task(0, "a", "m", 0), Task(1, "a", "m", 0)])] == [0, 1]
    # Machine ids distinguish hosts of one name.
    slots = place([Task(0, "localhost", "m1"), Task(1, "localhost", "m2")])
    assert [(slot.hostname, slot.cross_size) for slot in slots] == [("localhost", 2), ("localhost-2", 2)]
