"""Requirements of a build of Horovod, checked before it begins: tools, and room for its files."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from paceline.errors import UserError
from paceline.horovod import pip

_CMAKE_MINIMUM = (3, 19)  # cmake_language(DEFER)
MIB = 1 << 20
# Sources and objects of a build for both frameworks, without debug information; and its wheel.
TEMPORARY_BYTES = 160 * MIB
CACHE_BYTES = 20 * MIB


def tools(mpi: bool) -> None:
    """Raise UserError unless compiler, CMake, make, Python's headers and its packages for builds are installed."""
    pip.require("pip", "setuptools", "wheel")
    cxx = os.environ.get("CXX", "c++")
    wanted = {cxx: "g++", "cmake": "cmake", "make": "make"}
    if mpi:
        wanted.update({"mpicxx": "libopenmpi-dev", "mpirun": "openmpi-bin"})
    missing = {tool: package for tool, package in wanted.items() if shutil.which(tool) is None}
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        missing[str(header)] = "python3-dev"
    if missing:
        raise UserError(
            f"Building Horovod needs {', '.join(missing)}, which this machine lacks.",
            f"On Debian or Ubuntu: apt-get install {' '.join(sorted(set(missing.values())))}",
        )
    version = subprocess.run(["cmake", "--version"], capture_output=True, text=True, timeout=30).stdout
    match = re.search(r"(\d+)\.(\d+)", version)
    if match and (int(match[1]), int(match[2])) < _CMAKE_MINIMUM:
        raise UserError(
            f"cmake {match[0]} is too old: building Horovod needs {'.'.join(map(str, _CMAKE_MINIMUM))} or newer.",
            "Install a newer one, for instance with `pip install cmake`.",
        )


def cache(folder: Path) -> None:
    """Raise UserError unless files can be written to the cache."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"The cache folder {folder} has no wheel for this build and cannot be written: {error.strerror}.",
            "Name another with --cache-dir or PACELINE_CACHE_DIR.",
        ) from None
    _room(folder, CACHE_BYTES, "The cache folder", "--cache-dir or PACELINE_CACHE_DIR")


def temporary_folder() -> None:
    """Raise UserError unless the temporary folder has room for a build, and programs may run there."""
    folder = Path(tempfile.gettempdir())
    _room(folder, TEMPORARY_BYTES, "The temporary folder", "TMPDIR")
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise UserError(
            f"The temporary folder {folder} is mounted noexec: programs of the build cannot run there.",
            "Name another with TMPDIR, for example: mkdir -p ~/tmp && TMPDIR=~/tmp paceline horovod install",
        )


def _room(folder: Path, needed_bytes: int, what: str, names: str) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise UserError(
            f"{what} {folder} has {free_bytes // MIB} MiB free; building Horovod needs {needed_bytes // MIB} MiB.",
            f"Delete something there, or name another folder with {names}.",
        )


@contextlib.contextmanager
def disk_full(folder: str) -> Iterator[None]:
    """Raise UserError if a write fails because `folder` is full or the quota is exceeded."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UserError(
            f"Horovod could not be built: {error.strerror}: {error.filename or folder}.",
            f"Make room there; TMPDIR names another folder for temporary files, with {TEMPORARY_BYTES // MIB} MiB.",
        ) from error
