"""The scripts of Slurm, LSF and PBS: clean for shellcheck, and run here with fakes of the schedulers' programs.

A fake treats words and environment as its program is documented to. `paceline`, `horovodrun` and `python` record
their calls.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integration_tests.unit.launch.templates.cases import COMMAND, RANKS_PER_NODE, VARIABLE, Case, printed, table

# Writes one line of JSON per call: the words and the environment.
RECORDER = """#!{python} -IS
import json, os, sys
words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
call = {{"words": words, "environment": dict(os.environ), "folder": os.getcwd()}}
with open(os.environ.get("CALLS", "{calls}"), "a") as file:
    file.write(json.dumps(call) + "\\n")
sys.exit({code})
"""
STAND_INS = {
    # Runs its words once, after options that begin with dashes.
    "srun": 'while [[ $1 == -* ]]; do shift; done; exec "$@"',
    "jsrun": 'while [[ $1 == -* ]]; do shift 2; done; exec "$@"',
    "mpirun": 'while [[ $1 == -* ]]; do shift 2; done; exec "$@"',
    "scontrol": 'n=0; while ((n < NODES)); do echo "node$n"; n=$((n + 1)); done',
    # Joins its words for a remote shell, as rsh and ssh do.
    "blaunch": '[ "$1" = -z ]; machine=$2; shift 2; cd /; export ON=$machine; exec /bin/bash -c "$*"',
    # Starts in the home folder with its own environment, and does not report failures.
    "pbsdsh": '[ "$1 $3" = "-n --" ]; n=$2; shift 3; cd /; env -i PATH="$PATH" ON="node$n" "$@"; exit 0',
    "module": ":",
    "scancel": "[[ $* == *--name=digits-4711* ]]",
    # This job has the first machine, jobs added to it the others; the last does not answer.
    "squeue": 'if [[ $* == *--jobs=4711* ]]; then echo node0; else echo "node[1-2]"; echo node3; fi',
    "sinfo": '[[ $* == *--nodes=node0,node\\[1-2\\],node3\\ * ]]; for n in 0 1 2 1; do echo "node$n:4"; done',
}


def shellcheck(script: Path) -> None:
    """Check everything except doubts about `$` in quotes: in the user's words it is intended."""
    checker = Path(sys.executable).with_name("shellcheck")
    if not checker.exists():
        pytest.skip("the extra `templates` is not installed: no shellcheck")
    words = [str(checker), "--severity=style", "--exclude=SC2016,SC1003", str(script)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@table("slurm", "lsf", "pbs")
def test_shellcheck_finds_nothing(case: Case, tmp_path: Path) -> None:
    text = case.text()
    inner = re.findall(r"<<'END_OF_SCRIPT'\n(.*?)^END_OF_SCRIPT$", text, re.M | re.S)
    for number, script in enumerate([text, *(f"#!/bin/bash\n{script}" for script in inner)]):
        place = tmp_path / f"job{number}.sh"
        place.write_text(script)
        shellcheck(place)


def run(case: Case, tmp_path: Path, code: int = 0) -> tuple[int, list[dict[str, Any]]]:
    """Run the file as its scheduler would; return its exit code and the calls."""
    programs, job, calls = tmp_path / "programs", tmp_path / "job", tmp_path / "calls"
    for folder in (programs, job):
        folder.mkdir()
    for name in ("paceline", "horovodrun", "python"):
        (programs / name).write_text(RECORDER.format(python=sys.executable, calls=calls, code=code))
    for name, body in STAND_INS.items():
        (programs / name).write_text(f"#!/bin/bash\nset -eu\n{body}\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    machines = [f"node{n}" for n in range(case.nodes)]
    hosts = tmp_path / "hosts"
    hosts.write_text("".join(f"{machine}\n" * (2 if case.scheduler.name == "lsf" else 1) for machine in machines))
    environment = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "NODES": str(case.nodes),
        "SLURM_JOB_NODELIST": "node[0-9]", "SLURM_JOB_ID": "4711",
        "LSB_JOBID": "123456", "LSB_DJOB_HOSTFILE": str(hosts),
        "PBS_JOBID": "4711[3].server", "PBS_NODEFILE": str(hosts), "PBS_O_WORKDIR": str(job),
    }  # fmt: skip
    (job / "job.sh").write_text(case.text())
    done = subprocess.run(["/bin/bash", "job.sh"], cwd=job, env=environment, capture_output=True, text=True, timeout=60)
    made = [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []
    assert [path.name for path in job.iterdir()] == ["job.sh"], done.stderr
    assert code or not done.stderr, done.stderr
    return done.returncode, made


@table("slurm", "lsf", "pbs")
def test_every_rank_is_started_with_the_words_and_variables_of_the_user(case: Case, tmp_path: Path) -> None:
    code, calls = run(case, tmp_path)
    assert code == 0
    for call in calls:
        assert tuple(call["words"][-len(COMMAND) :]) == COMMAND
        assert call["environment"][VARIABLE[0]] == VARIABLE[1]
        assert call["environment"]["PACELINE_FUSION"] == "optimal"
        assert call["folder"].endswith("/job")
    before = [call["words"][: -len(COMMAND)] for call in calls]
    if case.kind.name in ("blaunch", "pbsdsh"):
        assert sorted(int(words[3]) for words in before) == list(range(case.ranks))
        rendezvous = {words[7] for words in before}
        assert len(rendezvous) == 1
        assert re.fullmatch(r"node0:2\d{4}", rendezvous.pop())
        for call, words in zip(calls, before):
            assert words[:3] + words[4:7] + words[8:] == [
                "paceline", "rank", "--rank", "--size", str(case.ranks), "--rendezvous", "--",
            ]  # fmt: skip
            assert call["environment"]["ON"] == f"node{int(words[3]) // RANKS_PER_NODE}"
    elif case.kind.name == "horovodrun":
        hosts = ",".join(f"node{n}:{RANKS_PER_NODE}" for n in range(case.nodes))
        assert before == [["horovodrun", "-np", str(case.ranks), "-H", hosts]]
    elif case.kind.name == "elastic":
        ((*words, machines),) = before
        assert words == ["horovodrun", "-np", str(case.ranks), "--min-np", "4", "--host-discovery-script"]
        assert not Path(machines.removeprefix("bash ")).exists(), "left behind"
    elif case.kind.name == "mpirun":
        assert before == [[]]
    else:
        assert before == [["paceline", "rank", "--"]]


@table("slurm", "lsf", "pbs", nodes=(1, 2))
def test_failure_of_a_rank_is_the_jobs(case: Case, tmp_path: Path) -> None:
    code, _ = run(case, tmp_path, code=7)
    assert code == 7


def directives(case: Case) -> list[str]:
    """Requests to the scheduler; all must come before the first command."""
    sign = {"slurm": "#SBATCH ", "lsf": "#BSUB ", "pbs": "#PBS "}[case.scheduler.name]
    lines = case.text().splitlines()
    first_command = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    found = [line for line in lines if line.startswith(sign)]
    assert [line for line in lines[:first_command] if line.startswith(sign)] == found
    assert all(" #" not in line for line in found), "not every scheduler knows comments behind a directive"
    return [line.removeprefix(sign) for line in found]


@table("slurm")
def test_slurm_is_asked_for_what_was_said(case: Case) -> None:
    assert directives(case) == [
        "--job-name=digits", "--output=%x-%j.out", f"--nodes={case.nodes}", "--ntasks-per-node=4", "--cpus-per-task=3",
        *(["--gpus-per-node=4"] if case.gpus else []), "--mem=65536M", "--time=1-02:30:00",
        *(["--no-kill"] if case.kind.name == "elastic" else []),
    ]  # fmt: skip


@table("lsf")
def test_lsf_is_asked_for_what_was_said(case: Case) -> None:
    slots = [f"-n {case.nodes * 12}", '-R "span[ptile=12]"']
    slots += ['-gpu "num=4/host:mode=shared:j_exclusive=yes"'] if case.gpus else []
    slots += ['-R "rusage[mem=65536MB]"']
    machines = [f"-nnodes {case.nodes}"] if case.kind.name == "jsrun" else slots
    assert directives(case) == ["-J digits", "-o digits-%J.out", *machines, "-W 1590"]
    if case.kind.name == "jsrun":
        text = " ".join(case.text().replace("\\\n", " ").split())
        gpus = " --gpu_per_rs 4" if case.gpus else ""
        assert (
            f"jsrun --nrs {case.nodes} --rs_per_host 1 --tasks_per_rs 4 --cpu_per_rs 12{gpus} --memory_per_rs 65536 "
            "--launch_distribution packed --bind packed:3 paceline rank -- python"
        ) in text


@table("pbs")
def test_pbs_is_asked_for_what_was_said(case: Case) -> None:
    processes = 4 if case.kind.name == "mpirun" else 1
    gpus = ":ngpus=4" if case.gpus else ""
    select = f"-l select={case.nodes}:ncpus=12:mpiprocs={processes}{gpus}:mem=65536mb"
    assert directives(case) == ["-N digits", "-j oe", select, "-l place=scatter", "-l walltime=26:30:00"]


def test_restarts_of_slurm_and_images_in_apptainer(tmp_path: Path) -> None:
    text = printed("slurm", "--restarts", "3", "python", "train.py")
    assert {"#SBATCH --requeue", "#SBATCH --open-mode=append"} <= set(text.splitlines())
    assert '[ "${SLURM_RESTART_COUNT:-0}" -lt 3 ]' in text
    (tmp_path / "job.sh").write_text(text)
    shellcheck(tmp_path / "job.sh")
    # The image runs in Apptainer.
    text = printed("slurm", "--image", "registry/train:1", "--gpus", "2", "python", "train.py")
    assert "apptainer exec --nv docker://registry/train:1 paceline rank -- python train.py\n" in text
    text = printed("pbs", "--start", "mpirun", "--image", "train.sif", "python", "train.py")
    assert "    apptainer exec train.sif python train.py\n" in text


def test_elastic_jobs_find_their_machines_and_say_how_to_add_one(tmp_path: Path) -> None:
    words = [
        "--start", "elastic", "--name", "digits", "--ranks-per-node", "4", "--gpus", "4", "--partition", "gpu",
        "--min-nodes", "2", "--time", "1h",
    ]  # fmt: skip
    text = printed("slurm", *words, "python", "train.py")
    assert "--min-np 8 " in text
    assert (
        "sbatch --job-name=$added --nodes=1 --ntasks-per-node=4 --cpus-per-task=1 --gpus-per-node=4 --time=01:00:00 "
        "--partition=gpu --output=/dev/null --wrap='sleep infinity'"
    ) in text
    for name in ("squeue", "sinfo"):
        (tmp_path / name).write_text(f"#!/bin/bash\nset -eu\n{STAND_INS[name]}\n")
        (tmp_path / name).chmod(0o755)
    (script,) = re.findall(r"<<'END_OF_SCRIPT'\n(.*?)^END_OF_SCRIPT$", text, re.M | re.S)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "4711"}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["node0:4", "node1:4", "node2:4"], done.stderr
