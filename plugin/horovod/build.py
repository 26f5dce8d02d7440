"""Build Horovod's wheel with hooks and patches, or use the one built before from the same inputs."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from paceline.config import Settings
from paceline.errors import UserError
from paceline.extras import how_to_install
from paceline.horovod import archive, failures, gpu, pip, requirements, shelf, tree
from paceline.horovod.environment import environment
from paceline.horovod.key import NONE, build_inputs, installed_frameworks, key
from paceline.horovod.release import ARCHIVE_NAME

BUILD_TIMEOUT_S = 3600
_PROGRESS = re.compile(r"^\s*\[\s*(\d+)%\]\s*(.*)")

# Called with a line for the user and the progress, 0 to 1 (None: unknown).
Report = Callable[[str, "float | None"], None]


def _quiet(_line: str, _done: float | None) -> None:
    return None


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _run(source: Path, out: Path, log: Path, env: Mapping[str, str], report: Report) -> None:
    command = pip.command("wheel", ".", "--no-deps", "--no-build-isolation", "--verbose", "--wheel-dir", str(out))
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            cwd=source,
            env=dict(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        # No compiler is left running after an error, an interrupt or the timeout.
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
        raise failures.failed(lines, log, installed_frameworks() or "none")


def _wants_mpi(mpi: bool | None) -> bool:
    return os.environ.get("HOROVOD_WITH_MPI") == "1" if mpi is None else mpi


def wanted(mpi: bool | None = None, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """Return the inputs of a build here and now (`paceline.horovod.key.build_inputs`)."""
    return build_inputs(_wants_mpi(mpi), leave_out)


def _new_log(settings: Settings, name: str) -> Path:
    """Create an empty file for the output of a build, which no other build writes to."""
    folder = settings.cache_dir / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    handle, path = tempfile.mkstemp(prefix=f"{name}-", suffix=".log", dir=folder)
    os.close(handle)
    return Path(path)


def _with_gpu(found: Mapping[str, str]) -> str:
    """Return a line on the GPU operations of a build."""
    asked = gpu.asked_for(os.environ)
    if not asked:
        return f"GPU operations are off ({gpu.ALL} is not set): tensors on GPUs travel through CPU memory"
    chosen = ", ".join(f"{name}={value}" for name, value in asked.items())
    return f"GPU operations: {chosen}; " + ", ".join(f"{name} {value}" for name, value in found.items())


def build(
    settings: Settings,
    *,
    report: Report = _quiet,
    force: bool = False,
    mpi: bool | None = None,
    leave_out: Collection[str] = (),
) -> Path:
    """Return the wheel of Horovod for this Python and the installed frameworks; build it only if the cache has none.

    Args:
        settings: parsed options; `cache_dir` is the cache.
        report: called with progress.
        force: build even if the cache has a wheel.
        mpi: include Open MPI (or another MPI) in addition to Gloo; None follows HOROVOD_WITH_MPI.
        leave_out: patches to leave out, or "hooks", for regression tests.

    Raises:
        UserError: for missing tools or frameworks, a failed download, a wrong archive, anchors that do not match,
            compile errors (naming the log), and a cached wheel that was changed.
    """
    frameworks = installed_frameworks()
    if not frameworks:
        raise UserError(
            "Neither PyTorch nor TensorFlow is installed: Horovod is built for at least one of them.",
            f"Install one first: {how_to_install('torch')}, or {how_to_install('tensorflow')}",
        )
    inputs = wanted(mpi, leave_out)
    place = settings.cache_dir / "wheels" / key(inputs)
    kept = None if force else shelf.found(place)
    if kept is None and not force and inputs["compiler"] == NONE:  # such as nodes that share another host's cache
        kept = shelf.alike(settings.cache_dir / "wheels", inputs, without="compiler")
    if kept is not None:
        report(f"Horovod's wheel was built before from the same inputs: {kept}", 1.0)
        return kept
    requirements.cache(settings.cache_dir)
    requirements.tools(_wants_mpi(mpi))
    requirements.temporary_folder()
    report(_with_gpu(inputs["found"]), 0.0)
    report("Fetching Horovod's source archive", 0.0)
    source_archive = archive.fetch(settings.cache_dir)
    log = _new_log(settings, key(inputs))
    with tempfile.TemporaryDirectory(prefix="paceline-horovod-") as temporary, requirements.disk_full(temporary):
        folder = Path(temporary)
        source = archive.unpack(source_archive, folder)
        tree.prepare(source, leave_out)
        (source / tree.PYTHON_FOLDER / "build_info.py").write_text(
            '"""What this Horovod was built from."""\n\nINPUTS = ' + repr(inputs) + "\n"
        )
        report(f"Building Horovod for {', '.join(f'{name} {version}' for name, version in frameworks.items())}", 0.0)
        out = folder / "out"
        env = environment(folder, _wants_mpi(mpi), frameworks, inputs["found"])
        _run(source, out, log, env, report)
        (wheel,) = out.glob("horovod-*.whl")
        kept = shelf.put(wheel, place, inputs)
    log.replace(log.with_name(f"{key(inputs)}.log"))
    report("Built", 1.0)
    return kept


def clean(settings: Settings) -> list[Path]:
    """Remove the archive, all wheels and the logs from the cache; return the removed paths."""
    removed = []
    for path in (settings.cache_dir / ARCHIVE_NAME, settings.cache_dir / "wheels", settings.cache_dir / "logs"):
        if path.is_dir():
            shutil.rmtree(path)
            removed.append(path)
        elif path.exists():
            path.unlink()
            removed.append(path)
    return removed
