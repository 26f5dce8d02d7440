"""Who a task is, from the variables of every scheduler; and what is refused, with its remedy."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from integration_tests.support import tasks
from paceline.errors import UserError
from paceline.launch.rank import identity, schedulers
from paceline.launch.rank.identity import Given


def given(flags: str, rank: int, size: int) -> Given:
    words = flags.format(rank=rank, size=size, port=29400).split()
    values: dict[str, Any] = dict(zip((word[2:] for word in words[::2]), words[1::2]))
    values |= {name: int(values[name]) for name in ("rank", "size") if name in values}
    return Given(**values)


@pytest.mark.parametrize("name", tasks.TASKS)
def test_every_scheduler_tells_its_tasks_who_they_are(name: str) -> None:
    variables, flags = tasks.TASKS[name]
    found = [identity.find(variables(rank, 4), given(flags, rank, 4)) for rank in range(4)]
    assert [(one.rank, one.size) for one in found] == [(rank, 4) for rank in range(4)]
    # All tasks look for rank 0 in one place, and know it for their own job's.
    assert len({(one.hosts, one.port, one.job) for one in found}) == 1
    assert found[0].hosts[0] in ("localhost", "127.0.0.1")
    tried = {identity.find(make(1, 2), given(flags, 1, 2)).source for make, flags in tasks.TASKS.values()}
    assert tried == {one.title for one in schedulers.SCHEDULERS} | {"flags"}


def test_another_job_and_another_step_have_other_names_and_ports() -> None:
    one = tasks.slurm(0, 2)
    others = [{**one, "SLURM_JOB_ID": "4712"}, {**one, "SLURM_STEP_ID": "1"}, {**one, "SLURM_RESTART_COUNT": "1"}]
    found = [identity.find(environ, Given()) for environ in (one, *others)]
    assert len({task.job for task in found}) == len({task.port for task in found}) == 4


def test_local_ranks_are_the_schedulers_and_what_is_about_the_starter_is_set_aside() -> None:
    environ = {**tasks.slurm(3, 4), "SLURM_LOCALID": "1"}
    assert identity.find(environ, Given()).local_rank == 1
    assert identity.find(tasks.blaunch(3, 4), Given()).local_rank is None
    found = identity.find(tasks.openmpi_daemons_by_srun(3, 4), Given())
    assert (found.rank, found.size, found.source) == (3, 4, "Open MPI (mpirun)")
    assert "set aside" in found.notes[0] and "SLURM_PROCID=0" in found.notes[0]


def test_flags_win_and_the_rest_stays_the_schedulers() -> None:
    found = identity.find(tasks.slurm(1, 2), Given(rendezvous="node7:4000"))
    assert (found.rank, found.hosts, found.port) == (1, ("node7",), 4000)
    assert found.hosts_from == "--rendezvous node7:4000"
    found = identity.find(tasks.slurm(1, 2), Given(rank=0, size=3, rendezvous="node7:4000"))
    assert (found.rank, found.size, found.source) == (0, 3, "flags")


def test_variables_that_name_the_host_of_rank_0_are_known() -> None:
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
    "no host": (
        {},
        Given(rank=1, size=2),
        "Neither a flag nor a variable tells this task on which host rank 0 runs",
        "--rendezvous HOST:PORT",
    ),
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
