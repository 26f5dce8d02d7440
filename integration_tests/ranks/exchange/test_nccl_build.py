"""Horovod with CUDA and NCCL from pip's packages alone: compiled, linked, and run on tensors in CPU memory.

No GPU is needed. PyTorch's CUDA build and its compiler are installed into a temporary folder: 2 GB to download, 6 GB on
disk.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import paceline.torch as hvd
from integration_tests.patches import overlay
from integration_tests.sanitizers import TORCH_ALONE
from integration_tests.support.exact_training import train
from integration_tests.support.ranks import ROOT, run_ranks
from paceline import config
from paceline.horovod import archive

INSTALL_TIMEOUT_S, BUILD_TIMEOUT_S, RUN_TIMEOUT_S = 1200, 2400, 300
ROOM_BYTES = 8 << 30
PACELINE = Path(sys.executable).with_name("paceline")

pytestmark = [pytest.mark.soak, pytest.mark.timeout(INSTALL_TIMEOUT_S + BUILD_TIMEOUT_S + RUN_TIMEOUT_S)]


def _install(site: Path, *packages: str) -> None:
    """Install packages into a new folder `site`, or skip the test with pip's reason."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--target", str(site), *packages]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    if done.returncode:
        pytest.skip(f"{packages} cannot be installed: {done.stderr.strip().splitlines()[-1]}")


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Environment with PyTorch's CUDA build, and with a Horovod with NCCL that was built for it."""
    folder = tmp_path_factory.mktemp("nccl")
    if shutil.disk_usage(folder).free < ROOM_BYTES:
        pytest.skip(f"{folder} has no room for PyTorch's CUDA build")
    site, cache = folder / "site", folder / "cache"
    env = {**os.environ, **TORCH_ALONE, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}
    try:
        # Equality of texts: the CPU build of the same release has a local version, which pip prefers. The CUDA build
        # pins the release of the toolkit.
        _install(site, f"torch==={torch.__version__.partition('+')[0]}", "cuda-toolkit[nvcc,cccl]")
        if not re.search(r"^cuda\b.*= '\d", (site / "torch" / "version.py").read_text(), re.MULTILINE):
            pytest.skip(f"the index has no CUDA build of PyTorch {torch.__version__}")
        cache.mkdir()
        shutil.copy(archive.fetch(config.read().cache_dir), cache)
        command = [str(PACELINE), "horovod", "build", "--nccl", "--cache-dir", str(cache)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
        assert done.returncode == 0, done.stderr
        overlay(Path(done.stdout.strip()), site)
        yield env
    finally:
        shutil.rmtree(folder)  # pytest would keep it


def _train(rank: int, size: int) -> None:
    assert torch.version.cuda and hvd.nccl_built() and hvd.cuda_built()
    for exchange in ("sync", "pipelined", "majority"):
        train(rank, size, exchange, None, "cpu")


def test_horovod_is_built_from_pips_packages_and_runs_without_a_gpu(env: dict[str, str]) -> None:
    check = [str(PACELINE), "horovod", "check", "--no-import"]
    done = subprocess.run(check, env={**env, "COLUMNS": "300"}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    assert re.search(
        r"GPU tensors in torch.*NCCL \(CUDA \d+\.\d+\): NCCL exchanges gradients between GPUs", done.stdout
    )
    site = Path(env["PYTHONPATH"].partition(os.pathsep)[0])
    library = next((site / "horovod" / "torch").glob("mpi_lib_v2*.so"))
    read = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True, timeout=60)
    assert "[libnccl.so.2]" in read.stdout and "RUNPATH" not in read.stdout and "RPATH" not in read.stdout, read.stdout
    run_ranks(_train, 2, env={"PYTHONPATH": env["PYTHONPATH"]}, timeout_s=RUN_TIMEOUT_S, fresh=True)
