"""The compose file against compose's specification, the Dockerfile for hadolint."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from integration_tests.unit.launch.templates.cases import COMMAND, VARIABLE, Case, cases, needed, printed, table
from integration_tests.unit.launch.templates.schemas import objects


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


IMAGE = ("docker", "--kind", "image")
BOTH = (*IMAGE, "--framework", "torch", "--framework", "tensorflow", "--mpi")
DOCKERFILES = [(case.id, case.words()) for case in cases("docker", kind="image")]
DOCKERFILES += [("bare", [*IMAGE]), ("mpi", [*IMAGE, "--mpi"]), ("both", [*BOTH, "--gpus", "1"])]


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
    plain = printed(*IMAGE)
    assert "mpi" not in plain.lower().replace("compilers", "")
