"""Builds of Horovod that fail, each for a cause made on purpose: the error shows the cause, a remedy and the log."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration_tests.support.more import first_of
from paceline import config
from paceline.errors import UserError
from paceline.horovod import build, failures, requirements
from paceline.horovod.archive import fetch
from paceline.horovod.key import BUILD_VARIABLES

BUILD_TIMEOUT_S = 600
# Each fails while CMake looks around, or with the first file that is compiled.
FAST = {"HOROVOD_WITHOUT_PYTORCH": "1", "HOROVOD_WITHOUT_TENSORFLOW": "1", "CCACHE_DISABLE": "1"}


@dataclass(frozen=True)
class Row:
    """A cause and what the error must contain. `compiler`: lines of a shell script that stands for CXX."""

    name: str
    problem: str
    remedy: str = ""
    environ: tuple[tuple[str, str], ...] = ()
    compiler: str = ""


_FOR_GLOO = 'case "$*" in *gloo/*.cc*) {} ;; esac\nexec c++ "$@"\n'
ROWS = (
    Row(
        "CMake's error",
        r"CMake Error at CMakeLists.txt:\d+ \(message\):\n  MPI is not installed, try changing HOROVOD_CPU_OPERATIONS",
        environ=(("HOROVOD_CPU_OPERATIONS", "MPI"),),
    ),
    Row(
        "a compiler that does not work",
        r"CMake Error.*\n(.*\n)*.*this compiler is broken",
        compiler="echo this compiler is broken >&2; exit 1\n",
    ),
    Row(
        "a header that is missing",
        r"fatal error: nccl\.h: No such file or directory",
        "libnccl-dev",
        compiler=_FOR_GLOO.format('echo "#include <nccl.h>" | c++ -x c++ -c - -o /dev/null; exit 1'),
    ),
    Row(
        "a compiler without memory",
        "out of memory|Cannot allocate memory|Killed",
        "--build-jobs 1",
        compiler=_FOR_GLOO.format('ulimit -v 60000; exec c++ "$@"'),
    ),
    Row(
        "a compiler without room",
        "No space left on device",
        "TMPDIR",
        compiler=_FOR_GLOO.format("echo > /dev/full; exit 1"),
    ),
)


@pytest.fixture
def settings(tmp_path: Path) -> config.Settings:
    """A cache of its own that has the archive."""
    cache = tmp_path / "cache"
    cache.mkdir()
    archive = fetch(config.read().cache_dir)
    (cache / archive.name).symlink_to(archive)
    return config.read({"PACELINE_CACHE_DIR": str(cache), "PACELINE_BUILD_JOBS": "1"})


@pytest.mark.timeout(BUILD_TIMEOUT_S)
@pytest.mark.parametrize("row", first_of(ROWS, ROWS[0]), ids=lambda row: row.name)
def test_failed_build_shows_its_cause(
    row: Row, settings: config.Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in BUILD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in {**FAST, **dict(row.environ)}.items():
        monkeypatch.setenv(name, value)
    if row.compiler:
        script = tmp_path / "broken-c++"
        script.write_text(f"#!/bin/bash\n{row.compiler}")
        script.chmod(0o755)
        monkeypatch.setenv("CXX", str(script))
    with pytest.raises(UserError) as error:
        build.build(settings)
    assert re.search(row.problem, error.value.problem), error.value.problem
    assert row.remedy in error.value.remedy, error.value
    assert len(error.value.problem.splitlines()) <= failures.SHOWN_LINES + 1
    log = re.search(r"The whole log is in (\S+\.log)", error.value.remedy)
    assert log and len(Path(log[1]).read_text().splitlines()) > failures.SHOWN_LINES
    # What only says that something failed is not shown in place of the cause.
    assert "CalledProcessError" not in error.value.problem
    assert not list((settings.cache_dir / "wheels").glob("*"))


def test_no_room_while_files_are_written() -> None:
    with pytest.raises(UserError, match="No space left on device") as error, requirements.disk_full("/somewhere"):
        with Path("/dev/full").open("w") as full:
            full.write("a" * (1 << 20))
    assert "TMPDIR" in error.value.remedy
    with pytest.raises(FileNotFoundError) as other, requirements.disk_full("/somewhere"):
        Path("/no/such/file").read_text()
    assert other.value.errno == errno.ENOENT
