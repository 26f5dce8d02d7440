"""Detection of the CUDA, NCCL and MPI that a build of Horovod would use; they are part of a wheel's key."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from paceline.errors import UserError
from paceline.horovod import gpu, requirements

PROBE_TIMEOUT_S = 300
CUDA_HOME = "CUDA_HOME"


def _probe(environ: Mapping[str, str], wanted: Mapping[str, bool]) -> dict[str, str]:
    """Run CMake to find the libraries; return value by name. Missing ones have no entry."""
    with tempfile.TemporaryDirectory(prefix="paceline-found-") as temporary:
        folder = Path(temporary)
        shutil.copyfile(Path(__file__).with_name("found.cmake"), folder / "CMakeLists.txt")
        result = folder / "result"
        command = ["cmake", "-S", temporary, "-B", str(folder / "build"), f"-DRESULT={result}"]
        command += [f"-DWITH_{name}={'ON' if value else 'OFF'}" for name, value in wanted.items()]
        done = subprocess.run(command, env=dict(environ), capture_output=True, text=True, timeout=PROBE_TIMEOUT_S)
        if done.returncode:
            raise UserError(
                f"CMake cannot look for {', '.join(name for name in wanted if wanted[name])}:\n{done.stderr.strip()}",
                "Put right what CMake says; CXX names the compiler.",
            )
        lines = result.read_text().splitlines()
    return dict(line.split("|", 1) for line in lines)


def _require_gpu(found: Mapping[str, str], environ: Mapping[str, str], with_nccl: bool) -> None:
    libraries = gpu.asked_for(environ)
    for name, library in libraries.items():
        if library not in gpu.LIBRARIES:
            raise UserError(f"{name}={library} is not a library.", f"Choose one of {', '.join(gpu.LIBRARIES)}.")
    asked = ", ".join(f"{name}={value}" for name, value in libraries.items())
    off = f"Or unset {', '.join(libraries)}: tensors on GPUs then travel through CPU memory."
    if "CUDA" not in found:
        nvcc = f"{found['nvcc']} is not part of one" if "nvcc" in found else "there is no nvcc"
        raise UserError(
            f"{asked} needs a whole CUDA toolkit, and CMake finds none: {nvcc}.",
            "Set HOROVOD_CUDA_HOME to a folder with bin/nvcc, include/cuda_runtime.h and lib64/libcudart.so. " + off,
        )
    if with_nccl and "NCCL" not in found:
        raise UserError(
            f"{asked} needs nccl.h and libnccl, and CMake finds no such header and library.",
            "Install NVIDIA's libnccl-dev, or set HOROVOD_NCCL_HOME to a folder with include/nccl.h and lib/libnccl.so "
            f"(the NCCL that pip installs with PyTorch has no libnccl.so to link). {off}",
        )
    if not gpu.of_framework("torch").startswith("CUDA") and environ.get("HOROVOD_WITHOUT_PYTORCH") != "1":
        raise UserError(
            f"{asked} needs a PyTorch that is built with CUDA; the installed one is not.",
            f"Install PyTorch's CUDA build, or build without it (HOROVOD_WITHOUT_PYTORCH=1). {off}",
        )


def found(mpi: bool, environ: Mapping[str, str]) -> dict[str, str]:
    """Return version and place of the requested CUDA, NCCL and MPI, by name; empty if none is requested.

    Raises UserError if a requested one is missing.
    """
    with_cuda = gpu.with_cuda(environ)
    with_nccl = with_cuda and any(library == "NCCL" for library in gpu.asked_for(environ).values())
    if not (mpi or with_cuda):
        return {}
    requirements.tools(mpi)
    there = _probe(environ, {"CUDA": with_cuda, "NCCL": with_nccl, "MPI": mpi})
    if with_cuda:
        _require_gpu(there, environ, with_nccl)
    if mpi and "MPI" not in there:
        raise UserError(
            "A build with MPI needs its development files, and CMake finds none.",
            "On Debian or Ubuntu: apt-get install libopenmpi-dev openmpi-bin. MPI_HOME names another MPI.",
        )
    return {name: value for name, value in there.items() if name != "nvcc"}
