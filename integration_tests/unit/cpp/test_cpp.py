"""The core's C++ unit tests: built by cmake into build/, one pytest case per source file.

`make test-cpp SANITIZE=thread` (or address) runs the same cases under a sanitizer.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from integration_tests.support.more import first_of

SOURCES = Path(__file__).resolve().parent
ROOT = SOURCES.parents[2]
SOURCE_FILES = sorted(str(path.relative_to(SOURCES)) for path in SOURCES.rglob("test_*.cc"))
# It searches all orders of events: half a minute.
EXHAUSTIVE = "partial/test_model.cc"
SANITIZE = os.environ.get("SANITIZE", "")
BUILD_TIMEOUT_S = 300
RUN_TIMEOUT_S = 180


def _run(command: list[str | Path], timeout_s: float) -> str:
    """The command's output; a failure shows it."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))} exited with {done.returncode}:\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="session")
def program() -> Path:
    """The test program, built if a source changed."""
    build = ROOT / "build" / ("cpp-" + (SANITIZE or "plain"))
    _run(
        [
            "cmake", "-S", SOURCES, "-B", build, f"-DSANITIZE={SANITIZE}",
            f"-DDOCTEST_DIR={Path(sys.prefix) / 'doctest/usr/include'}",
        ],
        BUILD_TIMEOUT_S,
    )  # fmt: skip
    _run(["cmake", "--build", build, "--parallel", "2"], BUILD_TIMEOUT_S)
    return build / "core_tests"


@pytest.mark.timeout(BUILD_TIMEOUT_S + RUN_TIMEOUT_S)
@pytest.mark.parametrize("source", first_of(SOURCE_FILES, *(name for name in SOURCE_FILES if name != EXHAUSTIVE)))
def test_source(program: Path, source: str) -> None:
    output = _run([program, f"--source-file=*/{source}", "--no-colors=true"], RUN_TIMEOUT_S)
    # doctest is content when its filter finds nothing; we are not.
    passed = re.search(r"test cases:\s+(\d+)\s*\|\s*(\d+) passed", output)
    assert passed and int(passed[1]) == int(passed[2]) > 0, output
