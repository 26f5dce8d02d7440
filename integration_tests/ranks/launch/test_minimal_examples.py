"""The minimal examples: short, of nothing but framework, data and Paceline, and they learn on real ranks."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

import paceline.examples
from integration_tests.support.more import more
from integration_tests.support.processes import finished

FOLDER = Path(str(paceline.examples.__file__)).parent
MINIMAL = {"minimal_torch": "torch", "minimal_keras": "keras", "minimal_tensorflow": "tensorflow"}


def test_all_are_looked_at() -> None:
    assert {path.stem for path in FOLDER.glob("minimal_*.py")} == set(MINIMAL)


@pytest.mark.parametrize(("example", "framework"), MINIMAL.items())
def test_minimal_example_is_short_and_imports_nothing_else(example: str, framework: str) -> None:
    source = (FOLDER / f"{example}.py").read_text()
    assert sum(bool(line.strip()) for line in source.splitlines()) <= 30
    imported = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module))
    assert imported == {framework, "sklearn.datasets", f"paceline.{framework}"}


@pytest.mark.parametrize(
    ("example", "size", "exchange"),
    [
        pytest.param("minimal_torch", 3, "sync", marks=pytest.mark.soak),
        more("minimal_torch", 2, "pipelined"),
        ("minimal_keras", 2, "sync"),
        pytest.param("minimal_keras", 2, "pipelined", marks=pytest.mark.soak),
        more("minimal_tensorflow", 2, "sync"),
        pytest.param("minimal_tensorflow", 2, "pipelined", marks=pytest.mark.soak),
    ],
)
def test_minimal_example_learns_and_rank_0_says_so(example: str, size: int, exchange: str) -> None:
    words = [sys.executable, "-m", "horovod.runner.launch", "-np", str(size), sys.executable]
    done = finished(*words, FOLDER / f"{example}.py", timeout_s=280, env={"PACELINE_EXCHANGE": exchange})
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if "accuracy" in line]
    assert {line.partition("<stdout>:")[0] for line in said} == {"[0]"}
    accuracies = [float(re.findall(r"accuracy:? ([0-9.]+)", line)[-1]) for line in said]
    assert len(accuracies) == 10
    assert accuracies[-1] > 0.8, said
