"""Detection of the CUDA, NCCL and MPI that a build of Horovod would use; they are part of a wheel's key."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from paceline.errors import UserError
from paceline.horovod import gpu, pip_cuda, requirements

PROBE_TIMEOUT_S = 300


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


def _install(parts: str) -> str:
    """Return the advice to install parts of the toolkit with pip, in the version of PyTorch's CUDA."""
    kind, _, version = gpu.of_framework("torch").partition(" ")
    release = f"=={'.'.join(version.split('.')[:2])}.*" if kind == "CUDA" and version else ""
    return f"pip install 'cuda-toolkit[{parts}]{release}' installs one for CUDA 13 or newer."


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
            f"{_install('nvcc,cccl')} Or set HOROVOD_CUDA_HOME to a folder with bin/nvcc, include/cuda_runtime.h and "
            f"lib64/libcudart.so. {off}",
        )
    if with_nccl and "NCCL" not in found:
        raise UserError(
            f"{asked} needs nccl.h and libnccl, and CMake finds no such header and library.",
            "Install NVIDIA's libnccl-dev, or PyTorch's CUDA build from PyPI, which brings NCCL along, or set "
            f"HOROVOD_NCCL_HOME to a folder with include/nccl.h and lib/libnccl.so. {off}",
        )
    if not gpu.of_framework("torch").startswith("CUDA") and environ.get("HOROVOD_WITHOUT_PYTORCH") != "1":
        raise UserError(
            f"{asked} needs a PyTorch that is built with CUDA; the installed one is not.",
            f"Install PyTorch's CUDA build, or build without it (HOROVOD_WITHOUT_PYTORCH=1). {off}",
        )


def _with_pip(there: dict[str, str], environ: Mapping[str, str], wanted: Mapping[str, bool]) -> dict[str, str]:
    """Return what `_probe` found, with the toolkit and the NCCL that pip has installed where the machine has none."""
    missing = {
        pip_cuda.CUDA_HOME: wanted["CUDA"] and "CUDA" not in there and not environ.get("HOROVOD_CUDA_HOME"),
        pip_cuda.NCCL_HOME: wanted["NCCL"] and "NCCL" not in there and not environ.get("HOROVOD_NCCL_HOME"),
    }
    chosen = {name: home for name, home in pip_cuda.homes().items() if missing[name]}
    if not chosen:
        return there
    with tempfile.TemporaryDirectory(prefix="paceline-cuda-") as temporary:
        found = _probe({**environ, **pip_cuda.link(chosen, Path(temporary), environ)}, wanted)
    if pip_cuda.NCCL_HOME in chosen and "NCCL" in found:  # not the link
        found["NCCL"] = f"{found['NCCL'].partition(' ')[0]} ({chosen[pip_cuda.NCCL_HOME]})"
    return {**found, **{name: str(home) for name, home in chosen.items()}}


def found(mpi: bool, environ: Mapping[str, str]) -> dict[str, str]:
    """Return version and place of the requested CUDA, NCCL and MPI, by name; empty if none is requested.

    Raises UserError if a requested one is missing.
    """
    with_cuda = gpu.with_cuda(environ)
    with_nccl = with_cuda and any(library == "NCCL" for library in gpu.asked_for(environ).values())
    if not (mpi or with_cuda):
        return {}
    requirements.tools(mpi)
    wanted = {"CUDA": with_cuda, "NCCL": with_nccl, "MPI": mpi}
    there = _with_pip(_probe(environ, wanted), environ, wanted)
    if with_cuda:
        _require_gpu(there, environ, with_nccl)
    if mpi and "MPI" not in there:
        raise UserError(
            "A build with MPI needs its development files, and CMake finds none.",
            "On Debian or Ubuntu: apt-get install libopenmpi-dev openmpi-bin. MPI_HOME names another MPI.",
        )
    return {name: value for name, value in there.items() if name != "nvcc"}
