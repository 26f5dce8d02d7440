"""Gradients on GPUs: modes of a build, where they are reported, and the CUDA toolkit of pip's packages."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from integration_tests.gpu import speed
from integration_tests.unit.horovod.test_builds import nothing_asked_for as nothing_asked_for
from paceline import config
from paceline.errors import UserError
from paceline.horovod import build, check, found, gpu, install, pip_cuda
from paceline.horovod.environment import environment
from paceline.launch import cli
from paceline.launch.environment import announce

ALLREDUCE, ALLGATHER = "HOROVOD_GPU_ALLREDUCE", "HOROVOD_GPU_ALLGATHER"
# Variables of a build: its mode, and the library of allreduces.
MODES: list[tuple[dict[str, str], str, str]] = [
    ({}, gpu.HOST_STAGING, ""),
    ({gpu.ALL: "NCCL"}, gpu.NCCL, "NCCL"),
    ({gpu.ALL: "MPI"}, gpu.WITHOUT_NCCL, "MPI"),
    ({ALLREDUCE: "NCCL"}, gpu.NCCL, "NCCL"),
    ({gpu.ALL: "NCCL", ALLREDUCE: "MPI"}, gpu.WITHOUT_NCCL, "MPI"),
    ({ALLGATHER: "NCCL"}, gpu.WITHOUT_NCCL, ""),
]


def _inputs(variables: dict[str, str]) -> dict[str, Any]:
    found = {"CUDA": "13.0.88", "CUDA_HOME": "/cuda", "NCCL": "2.28.9 (/lib/libnccl.so)"} if variables else {}
    return {"environment": variables, "found": found, "frameworks": {"torch": "2.13.0", "tensorflow": "2.21.0"}}


@pytest.mark.parametrize(("variables", "mode", "library"), MODES)
def test_mode_is_in_the_findings_and_in_the_first_line(
    variables: dict[str, str],
    mode: str,
    library: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    inputs = _inputs(variables)
    assert (gpu.mode(inputs), gpu.of_allreduces(inputs)) == (mode, library)
    monkeypatch.setattr(gpu, "of_framework", lambda name: "CUDA 13.0" if name == "torch" else "")
    monkeypatch.setattr(check, "built_from", lambda: inputs)
    monkeypatch.setattr(check, "installed_frameworks", lambda: inputs["frameworks"])
    rows = {row.what: row.found for row in check.gpu_findings()}
    assert rows["GPU tensors in torch"].startswith(f"{mode} (CUDA 13.0): ")
    assert rows["GPU tensors in tensorflow"] == "none: TensorFlow 2.21.0 is built without CUDA"
    announce(config.read({}))
    assert f"; gradients on GPUs: {mode}\n" in capsys.readouterr().err
    monkeypatch.setattr(gpu, "of_framework", lambda name: "")
    announce(config.read({}))
    assert "GPU" not in capsys.readouterr().err


def test_nccl_flag_is_the_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str | None] = []

    def built(*_: Any, **__: Any) -> Path:
        asked.append(os.environ.get(gpu.ALL))
        return tmp_path / "horovod.whl"

    monkeypatch.setattr(build, "build", built)
    monkeypatch.setattr(install, "install", lambda wheel: None)
    monkeypatch.setenv(gpu.ALL, "")  # restored at the end
    for command in ("build", "install"):
        done = CliRunner().invoke(cli.main, ["horovod", command, "--force", "--nccl", "--cache-dir", str(tmp_path)])
        assert done.exit_code == 0, done.output
    assert asked == ["NCCL", "NCCL"]


@pytest.fixture
def pip_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder nvidia/cu13 of a site-packages with files as NVIDIA's wheels have them."""
    site = tmp_path / "site"
    home = site / "nvidia" / "cu13"
    nvcc = home / "bin" / "nvcc"
    for name in (
        "bin/ptxas",
        "include/cuda_runtime.h",
        "nvvm/bin/cicc",
        "lib/libcudart.so.13",
        "lib/libcudart_static.a",
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    (home / "include/cuda.h").write_text("#define CUDA_VERSION 13000\n")
    # As nvcc does, it takes its folder from the path that it was called by.
    nvcc.write_text("""#!/bin/sh
echo 'Cuda compilation tools, release 13.0, V13.0.88'
echo "#\\$ TOP=${0%/*}/.." >&2
""")
    nvcc.chmod(0o755)
    nccl = site / "nvidia" / "nccl"
    for part, text in (
        ("include/nccl.h", "#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n#define NCCL_PATCH 9\n"),
        ("lib/libnccl.so.2", ""),
    ):
        (nccl / part).parent.mkdir(parents=True)
        (nccl / part).write_text(text)
    monkeypatch.setattr(pip_cuda, "_folders", lambda: [site / "nvidia"])
    monkeypatch.setenv("HOROVOD_WITHOUT_PYTORCH", "1")
    return home


def test_pips_packages_are_a_toolkit(pip_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpu.ALL, "NCCL")
    there = {"CUDA": "12.4", "CUDA_HOME": "/usr/local/cuda"}
    real = found._probe
    monkeypatch.setattr(found, "_probe", lambda environ, wanted: {**real(environ, wanted), **there})
    made = build.wanted()["found"]
    nccl = pip_home.parent / "nccl"
    assert made == {**there, "NCCL": f"2.28.9 ({nccl})", "NCCL_HOME": str(nccl)}, (
        "the machine's own toolkit comes first"
    )
    monkeypatch.setattr(
        found, "_probe", lambda environ, wanted: real(environ, wanted) if "pip-" in str(environ) else {}
    )
    made = build.wanted()["found"]
    assert made["CUDA"] == "13.0.88" and made["CUDA_HOME"] == str(pip_home) and made["NCCL_HOME"] == str(nccl)
    env = environment(tmp_path, False, {}, made)
    home, of_nccl = Path(env["HOROVOD_CUDA_HOME"]), Path(env["HOROVOD_NCCL_HOME"])
    assert home.parent == of_nccl.parent == tmp_path and env["CUDA_HOME"] == str(home)
    # nvcc looks for its parts from the parent of its folder.
    for name in (
        "bin/../nvvm/bin/cicc",
        "bin/../lib64/libcudart_static.a",
        "include/cuda_runtime.h",
        "lib64/libcudart.so",
    ):
        assert (home / name).exists(), name
    assert (of_nccl / "include/nccl.h").exists() and (of_nccl / "lib/libnccl.so").exists()
    assert "CMAKE_SKIP_BUILD_RPATH=ON" in Path(env["HOROVOD_CMAKE"]).read_text()
    which = subprocess.run(["sh", "-c", "command -v nvcc"], env=env, capture_output=True, text=True, timeout=60)
    assert which.stdout.strip() == str(home / "bin" / "nvcc")


def test_users_choice_overrides_pips_packages(pip_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpu.ALL, "NCCL")
    monkeypatch.setenv("HOROVOD_CUDA_HOME", str(tmp_path))
    with pytest.raises(UserError, match="needs a whole CUDA toolkit") as error:
        build.wanted()
    assert "pip install 'cuda-toolkit[nvcc,cccl]" in error.value.remedy
    env = environment(tmp_path, False, {}, {"CUDA_HOME": str(tmp_path), "NCCL": "2.28.9 (/usr/lib/libnccl.so)"})
    assert env["HOROVOD_CUDA_HOME"] == str(tmp_path) and "HOROVOD_NCCL_HOME" not in env
    assert "RPATH" not in Path(env["HOROVOD_CMAKE"]).read_text()


@pytest.mark.parametrize(
    ("copies", "kernels", "share"),
    [
        ([(0, 10)], [(5, 7), (6, 20)], 0.5),
        ([(0, 4), (2, 6), (10, 14)], [(3, 11)], 0.4),  # copies on two streams: their common time counts once
        ([(0, 4)], [(4, 8)], 0.0),
        ([], [(0, 1)], 0.0),
    ],
)
def test_share_of_copies_beside_kernels(
    copies: list[tuple[float, float]], kernels: list[tuple[float, float]], share: float
) -> None:
    assert speed.shared(copies, kernels) == pytest.approx(share)
