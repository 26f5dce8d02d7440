"""`paceline template`: refusals, output files, words that arrive unchanged; pages, compose files, images."""

from __future__ import annotations

import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from integration_tests.unit.launch.templates.cases import (
    COMMAND,
    VARIABLE,
    Case,
    cases,
    invoke,
    needed,
    objects,
    page,
    printed,
    table,
)
from integration_tests.unit.launch.test_cli import refused
from paceline import config
from paceline.launch import cli, quantities
from paceline.launch.templates import command
from paceline.launch.templates.command import SCHEDULERS

IMAGE = ("--image", "train:1")


@table()
def test_options_become_variables_and_comments_say_what_to_change(case: Case) -> None:
    text = case.text()
    for name, value in (("PACELINE_FUSION", "optimal"), ("PACELINE_EXCHANGE", "pipelined")):
        assert re.search(rf"\b{name}\W+(value\W+)?{value}\b", text)
    lines = text.splitlines()
    assert any(line.startswith(f"# Made by: paceline template {case.scheduler.name} ") for line in lines[:3])
    assert sum(line.lstrip().startswith("# ") for line in lines) >= 5
    assert "@{" not in "".join(line for line in lines if "@{name}" not in line)
    assert not any(line.rstrip() != line for line in lines)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fusion", "optimall"], "No fusion policy optimall is known here. Did you mean optimal?"),
        (["--no-reproducible"], ""),
        (["--pipelined-k", "4"], "PACELINE_PIPELINED_K=4 has no effect: it belongs to PACELINE_EXCHANGE=pipelined"),
        (["--debug", "armed=yes"], ""),
        (["--sync-every", "4"], "PACELINE_SYNC_EVERY=4 has no effect: it belongs to PACELINE_EXCHANGE=majority"),
    ],
)
@pytest.mark.parametrize(
    "command",
    ["template slurm {} a", "run --dry-run {} -np 1 sh", "rank --dry-run --rank 0 --size 1 --rendezvous a:3000 {}"],
)
def test_options_without_effect_are_reported_alike(command: str, words: list[str], said: str) -> None:
    result = CliRunner().invoke(cli.main, command.format(" ".join(words)).split())
    assert result.exit_code == 0, result.output
    remarks = [line for line in result.stderr.splitlines() if "has no effect" in line or "is known here" in line]
    assert len(remarks) == bool(said), result.stderr
    assert said in "".join(remarks)


@pytest.mark.parametrize(
    ("words", "problem", "remedy"),
    [
        (["slum"], "no command slum", "slurm"),
        (["slurm"], "no command for the ranks", "paceline template slurm -o job.sh python train.py"),
        (["slurm", "--start", "ssh", "a"], "'ssh' is not one of", "--help"),
        (["slurm", "--nodes", "0", "a"], "0 is not in the range", "--help"),
        (["slurm", "--gpu", "1", "a"], "no option --gpu", "--gpus"),
        (["slurm", "--gpus", "4", "--ranks-per-node", "3", "a"], "4 GPUs", "--gpus 4 --ranks-per-node 4"),
        (["slurm", "--gpus", "2", "--ranks-per-node", "4", "a"], "2 GPUs", "One GPU per rank"),
        (["slurm", "--start", "horovodrun", *IMAGE, "a"], "no place for --image", "--start rank"),
        (["slurm", "--start", "elastic", "--restarts", "1", "a"], "no place for --restarts", "--start rank"),
        (["slurm", "--min-nodes", "1", "a"], "no place for --min-nodes", "--start elastic"),
        (["slurm", "--time", "soon", "a"], "--time soon", "90m"),
        (["slurm", "--time", "30s", "a"], "--time 30s", "a minute or more"),
        (["slurm", "--memory", "64", "a"], "--memory 64", "with a unit"),
        (["slurm", "--name", "My job", "a"], "--name My job", "another --name"),
        (["slurm", "--partition", "a b", "a"], "--partition 'a b'", "partition (queue)"),
        (["slurm", "--partition", "a\n#SBATCH --wrap=x", "a"], "--partition", "partition (queue)"),
        (["slurm", "--env", "A", "a"], "--env A is not NAME=VALUE", "NCCL_DEBUG=INFO"),
        (["slurm", "--env", "PACELINE_FUSION=none", "a"], "PACELINE_FUSION", "--fusion"),
        (["slurm", "python", "-c", "a\nb"], "line break", "a script"),
        (["slurm", "--drain-limit-s", "few", "a"], "--drain-limit-s='few'", "PACELINE_DRAIN_LIMIT_S"),
        (["kubernetes", "a"], "needs --image", "--image registry/train:1"),
        (["kubernetes", "--image", "a b", "a"], "--image a b", "registry.example.org"),
        (["kubernetes", *IMAGE, "--setup", "x", "a"], "no place for --setup", "paceline template docker"),
        (["docker", "a"], "needs --image", "--kind image"),
        (["docker", *IMAGE, "--nodes", "2", "a"], "no place for --nodes", "--ranks-per-node"),
        (["docker", *IMAGE, "--time", "1h", "a"], "no place for --time", "timeout"),
        (["docker", *IMAGE, "--mpi", "a"], "no place for --mpi", "Leave --mpi out"),
        (["docker", *IMAGE, "--framework", "torch", "a"], "no place for --framework", "--kind image"),
        (["docker", "--kind", "image", *IMAGE], "no place for --image", "docker build -t"),
        (["docker", "--kind", "image", "--nodes", "2"], "no place for --nodes", "kubernetes"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_a_remedy(
    words: list[str], problem: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if len(words) > 1:
        words = [words[0], "-o", "job", *words[1:]]
    refused(invoke(*words), problem, remedy)
    assert list(tmp_path.iterdir()) == []


def test_file_is_written_as_it_is_printed_or_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "job.sh"
    result = invoke("slurm", "-o", str(place), "python", "train.py")
    assert result.exit_code == 0
    assert (result.stdout, "Wrote" in result.stderr) == ("", True)
    without_first_lines = place.read_text().splitlines()[2:]
    assert without_first_lines == printed("slurm", "python", "train.py").splitlines()[2:]
    assert stat.S_IMODE(place.stat().st_mode) & 0o444 == 0o444
    # A place that cannot be written is refused and left as it was.
    place = tmp_path / "job.sh"
    place.write_text("mine")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    refused(invoke("slurm", "-o", str(place), "a"), "exists already", "--force")
    refused(invoke("slurm", "-o", str(tmp_path), "a"), "is a folder", "-o")
    refused(invoke("slurm", "-o", str(tmp_path / "absent" / "job.sh"), "a"), "cannot be written", "-o")
    with monkeypatch.context() as disk:
        disk.setattr(Path, "replace", full)
        refused(invoke("slurm", "-o", str(place), "--force", "a"), "No space left", "-o")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("job.sh", "mine")]
    assert invoke("slurm", "-o", str(place), "--force", "a").exit_code == 0
    assert "srun" in place.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["job.sh"]


def test_flags_of_templates_and_of_run_do_not_meet() -> None:
    ours = {flag for option in config.OPTIONS for flag in option.flags}
    for one in (command.template_command.commands[scheduler.name] for scheduler in command.SCHEDULERS):
        flags = [flag for parameter in one.params for flag in (*parameter.opts, *parameter.secondary_opts)]
        assert len(flags) == len(set(flags)), one.name
        assert {flag for option in config.OPTIONS if option.scope == "run" for flag in option.flags} <= set(flags)
    assert "--name" not in ours
    rank = cli.main.get_command(click.Context(cli.main), "rank")
    assert rank is not None
    taken = {flag for parameter in rank.params for flag in parameter.opts}
    assert {"--rank", "--size", "--rendezvous"} <= taken, "files use them"


def test_times_as_schedulers_read_them() -> None:
    times = {"90m": 5400, "1h30m": 5400, "1-02:30:00": 95400, "00:01:00": 60}
    assert {text: quantities.seconds(text) for text in times} == times
    for words, line in {
        "slurm --time 26h30m": "#SBATCH --time=1-02:30:00\n",
        "pbs --time 26h30m": "#PBS -l walltime=26:30:00\n",
        "lsf --time 90s": "#BSUB -W 2\n",
        "kubernetes --image a --time 90s": "activeDeadlineSeconds: 90\n",
    }.items():
        assert line in printed(*words.split(), "a")


_FILE = re.compile(r"^    (paceline template .*?)\n\n```[a-z]*\n(.*?)^```$", re.M | re.S)


@pytest.mark.parametrize("name", [scheduler.name for scheduler in SCHEDULERS])
def test_page_has_the_file_that_the_command_prints_and_names_every_kind(name: str) -> None:
    shown = _FILE.findall(page(f"guides/{name}"))
    assert shown, f"docs/guides/{name}.md has no command `paceline template` followed by its file"
    for shown_command, file in shown:
        words = shlex.split(shown_command.replace("\\\n", " "))[2:]
        at = words.index("-o")
        # The page names the file that -o would write; it is printed here.
        text = printed(*words[:at], *words[at + 2 :])
        assert _without_first_line(text) == _without_first_line(file), f"make it anew: {shown_command}"
    # Page names every kind.
    (scheduler,) = (one for one in SCHEDULERS if one.name == name)
    text = page(f"guides/{name}")
    assert [kind.name for kind in scheduler.kinds if f"--{scheduler.chooser} {kind.name}" not in text] == []
    assert f"({name}.md)" in page("guides/launching")
    assert f"(../guides/{name}.md)" in page("reference/command")


def _without_first_line(text: str) -> list[str]:
    return [line for line in text.splitlines() if "Made by: " not in line]


@table("docker", kind="compose")
def test_compose_file_has_a_service_for_every_rank(case: Case) -> None:
    (made,) = objects(case.text())
    assert list(made["services"]) == [f"rank{n}" for n in range(4)]
    for rank, service in enumerate(made["services"].values()):
        words = [word.replace("$$", "$") for word in service["command"]]
        assert words == [
            "paceline", "rank", "--rank", str(rank), "--size", "4", "--rendezvous", "rank0:29400", "--", *COMMAND,
        ]  # fmt: skip
        values = {name: value.replace("$$", "$") for name, value in service["environment"].items()}
        assert values[VARIABLE[0]] == VARIABLE[1]
        assert values["PACELINE_EXCHANGE"] == "pipelined"
        resources = service["deploy"]["resources"]
        assert resources["limits"] == {"cpus": "3", "memory": "16384M"}
        if case.gpus:
            device = {"driver": "nvidia", "device_ids": [str(rank)], "capabilities": ["gpu"]}
            assert resources["reservations"]["devices"] == [device]
        else:
            assert "reservations" not in resources
    needed("compose_spec")
    from compose_spec import PyOptions

    PyOptions(apply_merge=True).from_yaml(case.text()).validate()


def test_gpus_are_shared_out() -> None:
    (made,) = objects(printed("docker", "--image", "a", "--gpus", "4", "--ranks-per-node", "2", "x"))
    assert [
        service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
        for service in made["services"].values()
    ] == [["0", "1"], ["2", "3"]]


IMAGE_KIND = ("docker", "--kind", "image")
BOTH = (*IMAGE_KIND, "--framework", "torch", "--framework", "tensorflow", "--mpi")
DOCKERFILES = [(case.id, case.words()) for case in cases("docker", kind="image")]
DOCKERFILES += [("bare", [*IMAGE_KIND]), ("mpi", [*IMAGE_KIND, "--mpi"]), ("both", [*BOTH, "--gpus", "1"])]


@pytest.mark.parametrize("words", [words for _, words in DOCKERFILES], ids=[name for name, _ in DOCKERFILES])
def test_hadolint_finds_nothing(words: list[str], tmp_path: Path) -> None:
    linter = Path(sys.executable).with_name("hadolint")
    if not linter.exists():
        pytest.skip("the extra `templates` is not installed: no hadolint")
    file = tmp_path / "Dockerfile"
    file.write_text(printed(*words))
    done = subprocess.run([linter, "--no-color", file], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@table("docker", kind="image")
def test_image_has_what_was_said(case: Case) -> None:
    lines = case.text().splitlines()
    assert sum(line.startswith("FROM ") for line in lines) == 2
    assert any(line.startswith("RUN paceline horovod install") for line in lines)
    assert [line for line in lines if line.startswith("FROM nvidia/cuda")][: case.gpus] == (
        [line for line in lines if line.startswith("FROM ")] if case.gpus else []
    )
    assert ("ENV HOROVOD_GPU_OPERATIONS=NCCL" in lines) == bool(case.gpus)
    assert 'ENV NOTE="50% of \\$HOME \\$\\$ \\"it\'s\\" \\\\ 1"' in lines
    assert 'ENV PACELINE_FUSION="optimal"' in lines
    (command,) = (line.removeprefix("CMD ") for line in lines if line.startswith("CMD "))
    (words,) = objects(command)
    assert tuple(words) == COMMAND


def test_frameworks_and_mpi() -> None:
    text = printed(*BOTH)
    assert "pip install --no-cache-dir '/src/paceline[torch,tensorflow]'" in text
    assert "RUN paceline horovod install --mpi " in text
    assert "useradd --create-home --uid 1000 mpiuser" in text
    assert "CMD" not in text
    plain = printed(*IMAGE_KIND)
    assert "mpi" not in plain.lower().replace("compilers", "")


@table(nodes=(1, 2))
def test_no_file_has_a_variable_of_the_shell_that_writes_it(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_HOROVOD_SECRET_KEY", "key-8d41c2")
    monkeypatch.setenv("API_TOKEN", "token-5150")
    text = case.text()
    assert "key-8d41c2" not in text and "token-5150" not in text
