"""Inputs of a Horovod build, as plain data, and their digest, which names a wheel in the cache."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Collection
from importlib import metadata
from pathlib import Path
from typing import Any

from paceline.horovod import gpu
from paceline.horovod.found import found
from paceline.horovod.release import ARCHIVE_SHA256, REVISION
from paceline.horovod.tree import all_edits, our_sources

# Distributions that contain each framework, in order of preference.
FRAMEWORKS: dict[str, tuple[str, ...]] = {
    "torch": ("torch",),
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tf-nightly", "tensorflow-rocm"),
}

# Variables of Horovod's own build that change its result.
BUILD_VARIABLES = (
    *gpu.VARIABLES,
    "HOROVOD_ALLOW_MIXED_GPU_IMPL",
    "HOROVOD_CPU_OPERATIONS",
    "HOROVOD_WITH_MPI",
    "HOROVOD_WITHOUT_MPI",
    "HOROVOD_WITHOUT_GLOO",
    "HOROVOD_WITH_PYTORCH",
    "HOROVOD_WITHOUT_PYTORCH",
    "HOROVOD_WITH_TENSORFLOW",
    "HOROVOD_WITHOUT_TENSORFLOW",
    "HOROVOD_BUILD_ARCH_FLAGS",
    "HOROVOD_BUILD_CUDA_CC_LIST",
    "HOROVOD_CUDA_HOME",
    "HOROVOD_NCCL_HOME",
    "HOROVOD_NCCL_INCLUDE",
    "HOROVOD_NCCL_LIB",
    "HOROVOD_NCCL_LINK",
    "HOROVOD_NVTX_INCLUDE",
    "HOROVOD_WITH_NVTX",
    "HOROVOD_WITHOUT_NVTX",
    "HOROVOD_ROCM_HOME",
    "HOROVOD_DEBUG",
    "CCL_ROOT",
    "CCL_CONFIGURATION",
    "CC",
    "CXX",
    "CFLAGS",
    "CXXFLAGS",
    "LDFLAGS",
)


NONE = "none"  # version of a missing program


def installed_frameworks() -> dict[str, str]:
    """Return name -> version of the frameworks installed for this Python, without importing them."""
    found = {}
    for name, distributions in FRAMEWORKS.items():
        for distribution in distributions:
            try:
                found[name] = metadata.version(distribution)
                break
            except metadata.PackageNotFoundError:
                continue
    return found


def changes_digest(leave_out: Collection[str] = ()) -> str:
    """Return the digest of all changes to Horovod: edits, Paceline's sources, the build's own files."""
    digest = hashlib.sha256()
    for edit in all_edits(leave_out):
        digest.update(repr(edit).encode())
    files = {**our_sources(), "paceline.cmake": Path(__file__).with_name("paceline.cmake")}
    for name, path in sorted(files.items()):
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _first_line(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return NONE
    result = subprocess.run(command, capture_output=True, text=True, timeout=30)
    return (result.stdout or result.stderr).partition("\n")[0].strip()


def set_variables() -> dict[str, str]:
    """Return the variables of Horovod's build that are set, with their values."""
    return {name: os.environ[name] for name in BUILD_VARIABLES if os.environ.get(name)}


def build_inputs(mpi: bool, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """Return all inputs that a wheel built here and now depends on.

    Raises UserError if a requested part is missing (`paceline.horovod.found.found`).
    """
    return {
        "archive": ARCHIVE_SHA256,
        "revision": REVISION,
        "changes": changes_digest(leave_out),
        "left_out": sorted(leave_out),
        "python": sysconfig.get_config_var("SOABI") or sys.version,
        "frameworks": installed_frameworks(),
        "mpi": _first_line("mpirun", "--version") if mpi else "",
        "found": found(mpi, os.environ),
        "compiler": _first_line(os.environ.get("CXX", "c++"), "--version"),
        "platform": f"{platform.system()} {platform.machine()} {' '.join(platform.libc_ver())}",
        "environment": set_variables(),
    }


def key(inputs: dict[str, Any]) -> str:
    """Return the name of a wheel in the cache."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:20]
