"""The environment of Horovod's own build."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from paceline.errors import UserError
from paceline.horovod import gpu, pip_cuda
from paceline.horovod.pip_cuda import CUDA_HOME
from paceline.horovod.release import LOCAL_VERSION

# CMake's variable.
JOBS = "CMAKE_BUILD_PARALLEL_LEVEL"


def _wrapper(folder: Path, with_gpu: bool, linked: bool) -> Path:
    """Write a cmake program with Paceline's options: Horovod's setup.py passes none, but accepts another program.

    `linked`: libraries are in a temporary folder, which may not be searched when Horovod's is loaded. Its framework has
    loaded them before.
    """
    wrapper = folder / "cmake-with-paceline"
    options = [f"-DCMAKE_PROJECT_horovod_INCLUDE={Path(__file__).with_name('paceline.cmake')}"]
    options += ["-DCMAKE_SKIP_BUILD_RPATH=ON"] if linked else []
    options += ["-DCMAKE_POLICY_VERSION_MINIMUM=3.5", f"-DPACELINE_WITHOUT_GPU={'OFF' if with_gpu else 'ON'}"]
    quoted = " ".join(f'"{option}"' for option in options)
    wrapper.write_text(f'#!/bin/sh\ncase "$1" in --build) exec cmake "$@" ;; esac\nexec cmake {quoted} "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


def _jobs() -> int:
    """Return the number of parallel compilers: CMAKE_BUILD_PARALLEL_LEVEL, or one per processor.

    Raises UserError if that is not a whole number above 0.
    """
    text = os.environ.get(JOBS, "").strip() or str(os.cpu_count() or 1)
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"{JOBS}={text!r} cannot be used.", "Set it to the number of compilers that run at once.")
    return int(text)


def environment(folder: Path, mpi: bool, frameworks: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a build in `folder`; the user's HOROVOD_* variables override Paceline's defaults.

    Args:
        folder: folder for the program named by HOROVOD_CMAKE.
        mpi: build with MPI, too.
        frameworks: version by name.
        found: see `paceline.horovod.found.found`.

    Raises:
        UserError: as `_jobs`.
    """
    with_gpu = bool(gpu.asked_for(os.environ))
    ours = {
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITH_MPI" if mpi else "HOROVOD_WITHOUT_MPI": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # Horovod's build uses ccache if it is installed; the folder's name differs each time.
        "CCACHE_BASEDIR": str(folder),
        "CCACHE_NOHASHDIR": "1",
    }
    for name, variable in (("torch", "PYTORCH"), ("tensorflow", "TENSORFLOW")):
        ours[f"HOROVOD_{'WITH' if name in frameworks else 'WITHOUT'}_{variable}"] = "1"
    if not with_gpu and os.environ.get("HOROVOD_WITH_NVTX") != "1":
        ours["HOROVOD_WITHOUT_NVTX"] = "1"  # its headers are a part of CUDA's
    from_pip = {name: home for name, home in pip_cuda.homes().items() if found.get(name) == str(home)}
    # Override MAKEFLAGS of an outer make, which refer to its own jobs.
    always = {
        "HOROVOD_CMAKE": str(_wrapper(folder, with_gpu, bool(from_pip))),
        "HOROVOD_LOCAL_VERSION": LOCAL_VERSION,
        "MAKEFLAGS": f"-j{_jobs()}",
    }
    merged = {**ours, **os.environ, **always}
    merged.pop("HOROVOD_CUDA_HOME", None)
    if CUDA_HOME in found:
        # Otherwise PyTorch's part of the build uses the folder above any nvcc on PATH as the toolkit.
        merged |= {"HOROVOD_CUDA_HOME": found[CUDA_HOME], CUDA_HOME: found[CUDA_HOME]}
    return merged | pip_cuda.link(from_pip, folder, merged)
