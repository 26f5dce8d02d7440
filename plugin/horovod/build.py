"""Build Horovod's wheel with hooks and patches, or take the one built before from the same inputs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from paceline.config import Settings
from paceline.errors import UserError
from paceline.horovod import archive, shelf, tree
from paceline.horovod.key import build_inputs, installed_frameworks, key
from paceline.horovod.release import ARCHIVE_NAME, LOCAL_VERSION

BUILD_TIMEOUT_S = 3600
_CMAKE_MINIMUM = (3, 19)  # cmake_language(DEFER)
_PROGRESS = re.compile(r"^\s*\[\s*(\d+)%\]\s*(.*)")

# What is called with a line for the user and how much is done, 0 to 1 (None: unknown).
Report = Callable[[str, "float | None"], None]


def _quiet(_line: str, _done: float | None) -> None:
    return None


def _require_tools(mpi: bool) -> None:
    cxx = os.environ.get("CXX", "c++")
    tools = {cxx: "g++", "cmake": "cmake", "make": "make"}
    if mpi:
        tools.update({"mpicxx": "libopenmpi-dev", "mpirun": "openmpi-bin"})
    missing = {tool: package for tool, package in tools.items() if shutil.which(tool) is None}
    if missing:
        raise UserError(
            f"Building Horovod needs {', '.join(missing)}, not found on PATH.",
            f"On Debian or Ubuntu: apt-get install {' '.join(sorted(set(missing.values())))}",
        )
    version = subprocess.run(["cmake", "--version"], capture_output=True, text=True, timeout=30).stdout
    match = re.search(r"(\d+)\.(\d+)", version)
    if match and (int(match[1]), int(match[2])) < _CMAKE_MINIMUM:
        raise UserError(
            f"cmake {match[0]} is too old: building Horovod needs {'.'.join(map(str, _CMAKE_MINIMUM))} or newer.",
            "Install a newer one, for instance with `pip install cmake`.",
        )


def _require_cache(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"The cache folder {folder} cannot be written: {error.strerror}.",
            "Name another with --cache-dir or PACELINE_CACHE_DIR.",
        ) from None


def _environment(folder: Path, settings: Settings, mpi: bool, frameworks: Mapping[str, str]) -> dict[str, str]:
    """The build's environment; what the user set in HOROVOD_* has the last word."""
    wrapper = folder / "cmake-with-paceline"
    include = Path(__file__).with_name("paceline.cmake")
    # Horovod's setup.py passes no CMake options on, but lets one name the cmake program.
    wrapper.write_text(
        "#!/bin/sh\n"
        'case "$1" in --build) exec cmake "$@" ;; esac\n'
        f'exec cmake "-DCMAKE_PROJECT_horovod_INCLUDE={include}" -DCMAKE_POLICY_VERSION_MINIMUM=3.5 "$@"\n'
    )
    wrapper.chmod(0o755)
    ours = {
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITH_MPI" if mpi else "HOROVOD_WITHOUT_MPI": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # Where ccache is installed Horovod's build uses it; our folder's name differs each time.
        "CCACHE_BASEDIR": str(folder),
        "CCACHE_NOHASHDIR": "1",
    }
    for name, variable in (("torch", "PYTORCH"), ("tensorflow", "TENSORFLOW")):
        ours[f"HOROVOD_{'WITH' if name in frameworks else 'WITHOUT'}_{variable}"] = "1"
    # MAKEFLAGS of a make that calls us speak of its own jobs.
    never = {"HOROVOD_CMAKE": str(wrapper), "HOROVOD_LOCAL_VERSION": LOCAL_VERSION}
    return {**ours, **os.environ, **never, "MAKEFLAGS": f"-j{settings.build_jobs}"}


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _run(source: Path, out: Path, log: Path, env: Mapping[str, str], report: Report) -> None:
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--verbose"]
    command += ["--wheel-dir", str(out)]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            cwd=source,
            env=dict(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        # Whatever ends us or takes too long, no compiler stays behind.
        limit = threading.Timer(BUILD_TIMEOUT_S, _end, [process])
        limit.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                file.write(line)
                if match := _PROGRESS.match(line):
                    report(match[2].strip(), int(match[1]) / 100)
            code = process.wait(BUILD_TIMEOUT_S)
        finally:
            limit.cancel()
            _end(process)
    if code:
        lines = log.read_text(errors="replace").splitlines()
        errors = [line.strip() for line in lines if re.search(r"error[: ]|Error \d|CMake Error", line)]
        raise UserError(
            "Horovod could not be built. The first errors:\n  " + "\n  ".join(errors[:5] or lines[-5:]),
            f"The whole log is in {log}. Frameworks seen: {installed_frameworks() or 'none'}.",
        )


def _wants_mpi(mpi: bool | None) -> bool:
    return os.environ.get("HOROVOD_WITH_MPI") == "1" if mpi is None else mpi


def wanted(mpi: bool | None = None, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """What a build here and now would be made from (`paceline.horovod.key.build_inputs`)."""
    return build_inputs(_wants_mpi(mpi), leave_out)


def build(
    settings: Settings,
    *,
    report: Report = _quiet,
    force: bool = False,
    mpi: bool | None = None,
    leave_out: Collection[str] = (),
) -> Path:
    """The wheel of Horovod for this Python and the installed frameworks; built only if the cache has none.

    `mpi`: with Open MPI (or another MPI) beside Gloo; None follows HOROVOD_WITH_MPI. `leave_out`: patches to leave out,
    or "hooks", for regression tests. Raises UserError for missing tools or frameworks, a failed download, a wrong
    archive, anchors that do not match, compile errors (naming the log) and a wheel that is not as it was put there.
    """
    frameworks = installed_frameworks()
    if not frameworks:
        raise UserError(
            f"Neither PyTorch nor TensorFlow is installed for {sys.executable}.",
            "Install one of them first (pip install 'paceline[torch]' or 'paceline[tensorflow]').",
        )
    _require_cache(settings.cache_dir)
    inputs = wanted(mpi, leave_out)
    place = settings.cache_dir / "wheels" / key(inputs)
    found = None if force else shelf.found(place)
    if found is not None:
        report(f"Horovod's wheel was built before from the same inputs: {found}", 1.0)
        return found
    _require_tools(_wants_mpi(mpi))
    report("Fetching Horovod's source archive", 0.0)
    source_archive = archive.fetch(settings.cache_dir)
    log = settings.cache_dir / "logs" / f"{key(inputs)}.log"
    with tempfile.TemporaryDirectory(prefix="paceline-horovod-") as temporary:
        folder = Path(temporary)
        source = archive.unpack(source_archive, folder)
        tree.prepare(source, leave_out)
        (source / tree.PYTHON_FOLDER / "build_info.py").write_text(
            '"""What this Horovod was built from."""\n\nINPUTS = ' + repr(inputs) + "\n"
        )
        report(f"Building Horovod for {', '.join(f'{name} {version}' for name, version in frameworks.items())}", 0.0)
        out = folder / "out"
        _run(source, out, log, _environment(folder, settings, _wants_mpi(mpi), frameworks), report)
        (wheel,) = out.glob("horovod-*.whl")
        kept = shelf.put(wheel, place)
        (place / "inputs.json").write_text(json.dumps(inputs, indent=1, sort_keys=True))
    report("Built", 1.0)
    return kept


def clean(settings: Settings) -> list[Path]:
    """Remove the archive, all wheels and the log from the cache; what was removed."""
    removed = []
    for path in (settings.cache_dir / ARCHIVE_NAME, settings.cache_dir / "wheels", settings.cache_dir / "logs"):
        if path.is_dir():
            shutil.rmtree(path)
            removed.append(path)
        elif path.exists():
            path.unlink()
            removed.append(path)
    return removed
