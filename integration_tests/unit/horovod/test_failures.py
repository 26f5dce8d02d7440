"""Builds of Horovod that fail, each for a cause made on purpose: the error shows the cause, a remedy and the log."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from integration_tests.support.more import first_of
from paceline import config
from paceline.errors import UserError
from paceline.horovod import build, failures, requirements
from paceline.horovod.key import BUILD_VARIABLES

BUILD_TIMEOUT_S = 600
# Each fails while CMake looks around, or with the first file that is compiled.
FAST = {"HOROVOD_WITHOUT_PYTORCH": "1", "HOROVOD_WITHOUT_TENSORFLOW": "1", "CCACHE_DISABLE": "1"}


_FOR_GLOO = 'case "$*" in *gloo/*.cc*) {} ;; esac\nexec c++ "$@"\n'
# Cause: what the problem and the remedy must contain, variables, and lines of a shell script that stands for CXX.
ROWS: dict[str, tuple[str, str, dict[str, str], str]] = {
    "CMake's error": (
        r"CMake Error at CMakeLists.txt:\d+ \(message\):\n  MPI is not installed, try changing HOROVOD_CPU_OPERATIONS",
        "",
        {"HOROVOD_CPU_OPERATIONS": "MPI"},
        "",
    ),
    "a compiler that does not work": (
        r"CMake Error.*\n(.*\n)*.*this compiler is broken",
        "",
        {},
        "echo this compiler is broken >&2; exit 1\n",
    ),
    "a header that is missing": (
        r"fatal error: nccl\.h: No such file or directory",
        "libnccl-dev",
        {},
        _FOR_GLOO.format('echo "#include <nccl.h>" | c++ -x c++ -c - -o /dev/null; exit 1'),
    ),
    "a compiler without memory": (
        "out of memory|Cannot allocate memory|Killed",
        "--build-jobs 1",
        {},
        _FOR_GLOO.format('ulimit -v 60000; exec c++ "$@"'),
    ),
    "a compiler without room": ("No space left on device", "TMPDIR", {}, _FOR_GLOO.format("echo > /dev/full; exit 1")),
}


@pytest.mark.timeout(BUILD_TIMEOUT_S)
@pytest.mark.parametrize("cause", first_of(ROWS, "CMake's error"))
def test_failed_build_shows_its_cause(
    cause: str, with_archive: config.Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, remedy, variables, compiler = ROWS[cause]
    for name in BUILD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in {**FAST, **variables}.items():
        monkeypatch.setenv(name, value)
    if compiler:
        script = tmp_path / "broken-c++"
        script.write_text(f"#!/bin/bash\n{compiler}")
        script.chmod(0o755)
        monkeypatch.setenv("CXX", str(script))
    with pytest.raises(UserError) as error:
        build.build(with_archive)
    assert re.search(problem, error.value.problem), error.value.problem
    assert remedy in error.value.remedy, error.value
    assert len(error.value.problem.splitlines()) <= failures.SHOWN_LINES + 1
    log = re.search(r"The whole log is in (\S+\.log)", error.value.remedy)
    assert log and len(Path(log[1]).read_text().splitlines()) > failures.SHOWN_LINES
    # What only says that something failed is not shown in place of the cause.
    assert "CalledProcessError" not in error.value.problem
    assert not list((with_archive.cache_dir / "wheels").glob("*"))


def test_no_room_while_files_are_written() -> None:
    with pytest.raises(UserError, match="No space left on device") as error, requirements.disk_full("/somewhere"):
        with Path("/dev/full").open("w") as full:
            full.write("a" * (1 << 20))
    assert "TMPDIR" in error.value.remedy
    with pytest.raises(FileNotFoundError) as other, requirements.disk_full("/somewhere"):
        Path("/no/such/file").read_text()
    assert other.value.errno == errno.ENOENT
