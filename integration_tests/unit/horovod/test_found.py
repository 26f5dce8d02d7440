"""CUDA, NCCL and MPI: what is on PATH decides nothing unless it is asked for; then it belongs to a wheel's key."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from integration_tests.support.more import more
from integration_tests.support.mpi import needs_open_mpi
from paceline import config
from paceline.errors import UserError
from paceline.horovod import archive, build, gpu, key, tree
from paceline.horovod.environment import environment
from paceline.horovod.key import BUILD_VARIABLES

CONFIGURE_TIMEOUT_S = 900
CUDA = "13.0"


@pytest.fixture(autouse=True)
def nothing_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*BUILD_VARIABLES, "CUDA_HOME", "CUDA_PATH", "CUDAToolkit_ROOT", "CUDACXX", "NCCL_ROOT"):
        monkeypatch.delenv(name, raising=False)


def _nvcc(folder: Path, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    nvcc = folder / "nvcc"
    nvcc.write_text(f"#!/bin/sh\n{script}\n")
    nvcc.chmod(0o755)
    return nvcc


@pytest.fixture
def stray_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An nvcc that is first on PATH and not part of a toolkit."""
    nvcc = _nvcc(tmp_path / "stray" / "bin", "exit 1")
    monkeypatch.setenv("PATH", f"{nvcc.parent}{os.pathsep}{os.environ['PATH']}")
    return nvcc


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a CUDA toolkit that CMake looks for, in the folder that HOROVOD_CUDA_HOME names."""
    home = tmp_path / "cuda"
    _nvcc(home / "bin", f"echo 'Cuda compilation tools, release {CUDA}, V{CUDA}.48'; echo '#$ TOP={home}' >&2")
    for name in ("include/cuda_runtime.h", "lib64/libcudart.so", "lib64/libcudart_static.a"):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).touch()
    (home / "include/cuda.h").write_text("#define CUDA_VERSION 13000\n")
    monkeypatch.setenv("HOROVOD_CUDA_HOME", str(home))
    monkeypatch.setenv("HOROVOD_WITHOUT_PYTORCH", "1")
    return home


def _nccl(folder: Path, patch: int) -> None:
    for name in ("include", "lib"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    lines = [f"#define NCCL_{part} {value}\n" for part, value in (("MAJOR", 2), ("MINOR", 28), ("PATCH", patch))]
    (folder / "include/nccl.h").write_text("".join(lines))
    (folder / "lib/libnccl.so").touch()


def test_nothing_is_looked_for_unless_asked(stray_nvcc: Path) -> None:
    assert build.wanted()["found"] == {}
    assert not gpu.asked_for({"HOROVOD_GPU_OPERATIONS": "", "HOROVOD_CUDA_HOME": "/usr/local/cuda"})


def test_what_is_no_toolkit_is_refused_before_the_build(
    stray_nvcc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "NCCL")
    with pytest.raises(UserError) as error:
        build.wanted()
    assert error.value.problem == (
        "HOROVOD_GPU_OPERATIONS=NCCL needs a whole CUDA toolkit, and CMake finds none: "
        f"{stray_nvcc} is not part of one."
    )
    assert "HOROVOD_CUDA_HOME" in error.value.remedy and "unset HOROVOD_GPU_OPERATIONS" in error.value.remedy
    monkeypatch.setenv("HOROVOD_CUDA_HOME", str(tmp_path))
    with pytest.raises(UserError, match="HOROVOD_GPU_OPERATIONS=NCCL needs a whole CUDA toolkit"):
        build.wanted()
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "nccl")
    with pytest.raises(UserError, match="HOROVOD_GPU_OPERATIONS=nccl is not a library") as error:
        build.wanted()
    assert error.value.remedy == "Choose one of NCCL, MPI."


def test_key_has_the_toolkit_and_nccl_that_were_found(
    toolkit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "NCCL")
    monkeypatch.setenv("HOROVOD_NCCL_HOME", str(tmp_path / "nccl"))
    with pytest.raises(UserError, match=r"needs nccl\.h and libnccl") as error:
        build.wanted()
    assert "libnccl-dev" in error.value.remedy
    keys = []
    for patch in (3, 9):
        _nccl(tmp_path / "nccl", patch)
        inputs = build.wanted()
        found = inputs["found"]
        assert found["CUDA_HOME"] == str(toolkit) and found["CUDA"].startswith(CUDA)
        assert found["NCCL"] == f"2.28.{patch} ({tmp_path}/nccl/lib/libnccl.so)"
        keys.append(key.key(inputs))
    assert keys[0] != keys[1]


def test_pytorch_without_cuda_is_said_before_the_build(toolkit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if gpu.of_framework("torch"):
        monkeypatch.setattr(gpu, "of_framework", lambda name: "")
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "MPI")
    monkeypatch.delenv("HOROVOD_WITHOUT_PYTORCH")
    with pytest.raises(UserError, match="needs a PyTorch that is built with CUDA"):
        build.wanted()


@needs_open_mpi
def test_key_has_the_mpi_that_was_found() -> None:
    assert "libmpi" in build.wanted(mpi=True)["found"]["MPI"]


def torch_with_cuda(folder: Path) -> None:
    """Lay the installed PyTorch into `folder`, by links, as one that says that it is a CUDA build."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    real = Path(spec.origin).parent
    changed = {"version.py", "utils/cpp_extension.py"}
    for part in ("", "utils"):
        (folder / "torch" / part).mkdir(parents=True)
        for path in (real / part).iterdir():
            name = str(path.relative_to(real))
            if name not in {*changed, "utils"} and path.name != "__pycache__":
                (folder / "torch" / name).symlink_to(path)
    for name, pattern, line in (
        ("version.py", r"^cuda\b.*$", f"cuda = '{CUDA}'"),
        ("utils/cpp_extension.py", r"^CUDA_HOME = .*$", "CUDA_HOME = _find_cuda_home()"),
    ):
        text, count = re.subn(pattern, line, (real / name).read_text(), flags=re.MULTILINE)
        assert count == 1
        (folder / "torch" / name).write_text(text)


@pytest.mark.timeout(CONFIGURE_TIMEOUT_S)
@pytest.mark.parametrize("with_torch", [False, more(True)], ids=["Gloo alone", "CUDA build of PyTorch"])
def test_stray_nvcc_does_not_keep_cmake_from_its_work(
    with_torch: bool, stray_nvcc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Horovod's CMakeLists.txt enables CUDA, and torch/CMakeLists.txt requires its toolkit, for any nvcc on PATH."""
    source = archive.unpack(archive.fetch(config.read().cache_dir), tmp_path)
    tree.prepare(source)
    monkeypatch.setenv("HOROVOD_WITHOUT_TENSORFLOW", "1")
    if not with_torch:
        monkeypatch.setenv("HOROVOD_WITHOUT_PYTORCH", "1")
    env = environment(tmp_path, config.read(), False, {"torch": ""} if with_torch else {}, {})
    if with_torch:
        torch_with_cuda(tmp_path / "site")
        env |= {"PYTHONPATH": str(tmp_path / "site")}
        ask = [sys.executable, "-c", "from torch.utils.cpp_extension import CUDA_HOME; print(CUDA_HOME)"]
        answer = subprocess.run(ask, env=env, capture_output=True, text=True, timeout=CONFIGURE_TIMEOUT_S)
        assert answer.stdout.strip() == str(stray_nvcc.parents[1]), answer.stderr
    options = ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", f"-DPYTHON_EXECUTABLE:FILEPATH={sys.executable}"]
    command = [env["HOROVOD_CMAKE"], "-S", str(source), "-B", str(tmp_path / "build"), *options]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=CONFIGURE_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert ("Found Pytorch" in done.stdout) == with_torch
    assert "CUDA" not in done.stdout
