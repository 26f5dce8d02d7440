"""Tools of the tests: pairs, skips, Horovod's own tests, and `make test` without the cluster's tools."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support.matrix_table import POSSIBLE, ROWS
from integration_tests.support.packages import ROOT
from integration_tests.support.pairs import by_pairs, cover, pairs_of
from integration_tests.support.skips import expected
from integration_tests.upstream.expectations import (
    AS_EXPECTED,
    BETTER,
    WORSE,
    Expectation,
    RankOutcome,
    judge,
    load_table,
    read,
)
from paceline.errors import UserError
from paceline.examples.benchmarks.cluster import tools

FIVES = list(product(range(5), repeat=3))
HOLES = [row for row in product(range(4), range(3), range(3), range(2)) if sum(row) % 5 and row[:2] != (3, 2)]


@pytest.mark.parametrize(("rows", "most"), [(FIVES, 35), (HOLES, 18), (POSSIBLE, 360)])
def test_a_cover_has_all_pairs(rows: list[tuple[object, ...]], most: int) -> None:
    chosen = cover(rows)
    assert set.union(*map(pairs_of, chosen)) == set.union(*map(pairs_of, rows))
    assert len(chosen) == len(set(chosen)) <= most
    assert chosen == [row for row in rows if row in chosen] == cover(rows)


def test_the_matrix_of_torch_is_a_cover_and_the_others_are_for_test_more() -> None:
    assert set(ROWS) == set(cover(POSSIBLE))
    # The other cases are for `make test-more`.
    cases = by_pairs("ab", "cd", "ef")
    few = [case for case in cases if isinstance(case, tuple) and not hasattr(case, "marks")]
    assert (len(cases), len(few)) == (8, 4)
    assert {mark.name for case in cases if hasattr(case, "marks") for mark in case.marks} == {"more"}


CASES = {
    "import pytest\n\ndef test_one():\n    pytest.skip('no such luck')\n": 1,
    "import pytest\npytest.importorskip('no_such_module')\n": 1,
    "import pytest\n\ndef test_one():\n    pytest.skip('this machine has no network interface but loopback')\n": 0,
    "import pytest\n\n@pytest.mark.xfail\ndef test_one():\n    assert False\n": 0,
}


def run(folder: Path, source: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with our settings on a module of `source` and one that passes."""
    (folder / "test_it.py").write_text(source)
    (folder / "test_other.py").write_text("def test_that_passes(): ...\n")
    words = ("-q", "-rs", "-p", "no:cacheprovider", "-p", "integration_tests.conftest", "--strict-skips", *words)
    command = [sys.executable, "-m", "pytest", *words, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(("source", "code"), CASES.items())
def test_unexpected_skips_fail_the_run(source: str, code: int, tmp_path: Path) -> None:
    done = run(tmp_path, source)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("skips that are not expected" in done.stdout) is bool(code)


def test_a_run_that_has_no_time_left_says_how_many_tests_it_left_out(tmp_path: Path) -> None:
    late = "import time\n\ndef test_one():\n    now = time.monotonic()\n    time.monotonic = lambda: now + 1000\n"
    done = run(tmp_path, late, "--within", "900")
    assert done.returncode == 0 and "1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert "the time of this run is over: 900 s (--within)" in done.stdout


def test_what_a_cluster_lacks_without_root_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(UserError) as caught:
        tools.check()
    assert expected(f"{caught.value.problem} {caught.value.remedy}")


FILE = "parallel/test_x.py::Tests::"
ROW = Expectation(path="parallel/test_x.py", passed=2, limit_s=60, may_fail={"test_muon": "1-D parameters"})


def _phase(test: str, outcome: str, when: str = "call", **more: str) -> dict[str, Any]:
    return {"test": FILE + test, "outcome": outcome, "when": when, "text": "", **more}


def _record(path: Path, rank: int, *events: dict[str, Any]) -> RankOutcome:
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return read(path, rank)


def test_records_count_a_test_once_and_name_the_one_that_a_rank_died_in(tmp_path: Path) -> None:
    tests = ["test_a", "test_b", "test_muon", "test_skip", "test_sub"]
    outcome = _record(
        tmp_path / "rank0.jsonl",
        0,
        {"collected": [FILE + test for test in tests]},
        *[_phase("test_a", "passed", when) for when in ("setup", "call", "teardown")],
        *[_phase("test_b", "passed"), _phase("test_b", "failed", "teardown", text="left open")],
        _phase("test_muon", "failed", text="2D only"),
        _phase("test_skip", "skipped", "setup"),
        *[_phase("test_sub", "failed", subtest="eager"), _phase("test_sub", "passed")],
        {"finished": 1},
    )
    assert (outcome.passed, outcome.skipped) == ({"test_a", "test_sub"}, {"test_skip"})
    assert outcome.failed == {"test_b": "left open", "test_muon": "2D only", "test_sub (eager)": ""}
    assert outcome.finished and not outcome.unreached
    both = {"collected": [FILE + "test_a", FILE + "test_b"]}
    died = _record(tmp_path / "rank1.jsonl", 1, both, _phase("test_a", "passed"))
    assert died.unreached == ["test_b"]
    verdict = judge(ROW, [died], timed_out=False)
    assert (verdict.word, verdict.remarks[0]) == (WORSE, "rank 1 did not finish in test_b; 1 tests have no outcome")
    assert judge(ROW, [read(tmp_path / "no record.jsonl", 0)], timed_out=False).word == WORSE


def test_what_may_fail_with_many_ranks_must_pass_with_fewer() -> None:
    row = Expectation(path="parallel/test_x.py", passed=2, limit_s=60, may_fail_from={3: {"test_b": "rounding"}})
    outcomes = [_outcome(rank, {"test_a"}, {"test_b": "off by one"}) for rank in range(3)]
    assert judge(row, outcomes, timed_out=False).word == AS_EXPECTED
    few = judge(row, outcomes[:2], timed_out=False)
    remarks = ("test_b failed on ranks 0, 1: off by one", "1 passed where 2 are expected to")
    assert (few.word, few.remarks) == (WORSE, remarks)
    ended = judge(ROW, [_outcome(0, {"test_a", "test_b"}, {})], timed_out=True)
    assert (ended.word, ended.remarks) == (WORSE, ("was ended after 60 s",))


def _outcome(rank: int, passed: set[str], failed: dict[str, str]) -> RankOutcome:
    return RankOutcome(rank, passed=passed, failed=failed, finished=True)


@pytest.mark.parametrize(
    ("passed", "failed", "word", "remark"),
    [
        ({"test_a", "test_b"}, {"test_muon": "2D only"}, AS_EXPECTED, None),
        ({"test_a", "test_b"}, {"test_muon[float16]": "2D only"}, AS_EXPECTED, None),
        ({"test_a", "test_muon"}, {}, BETTER, "test_muon may fail but passed"),
        ({"test_a", "test_b", "test_c"}, {}, BETTER, "3 passed where 2 are expected to"),
        ({"test_a", "test_b"}, {"test_c": "3 != 4\nmore"}, WORSE, "test_c failed on rank 1: 3 != 4"),
        ({"test_a"}, {}, WORSE, "1 passed where 2 are expected to"),
    ],
)
def test_verdict(passed: set[str], failed: dict[str, str], word: str, remark: str | None) -> None:
    # Rank 0 has the expected outcome, or rank 1's if that is better.
    good = passed if word == BETTER else {"test_a", "test_b"}
    verdict = judge(ROW, [_outcome(0, good, {}), _outcome(1, passed, failed)], timed_out=False)
    assert verdict.word == word
    assert [text.startswith(remark or "") for text in verdict.remarks] == ([] if remark is None else [True])


def test_every_row_of_the_table_is_usable() -> None:
    rows = load_table().values()
    assert {row.folder for row in rows} == {"parallel", "single", "integration"}
    for row in rows:
        assert row.passed > 0 and row.limit_s > 0 and all(size > 1 for size in row.ranks), row
        assert all(reason.strip() for reason in row.may_fail.values()), row


BASICS = ("sh", "make", "dirname", "sed", "mktemp", "rm", "mkdir", "chmod", "tail", "grep", "touch")
PACKAGES = set(tools.PACKAGES.values())
NO_SERVICE = Path("etc/ssh/sshd_not_to_be_run")
SKIPPED = "tests in integration_tests/cluster will be skipped"


class Machine:
    """A machine with make and our complete environment, but without the tools of the cluster."""

    def __init__(self, folder: Path) -> None:
        self.root, self.bin, self.venv = folder / "root", folder / "bin", folder / "venv"
        for path in (self.root / "usr/sbin", self.bin, self.venv / "bin", self.venv / "stamps"):
            path.mkdir(parents=True)
        for name in BASICS:
            found = shutil.which(name)
            assert found, name
            (self.bin / name).symlink_to(found)
        self.program(self.venv / "bin/python", 'echo "would run: $*"')
        for stamp in ("venv", "build-tools", "install", "horovod", "doctest"):
            (self.venv / "stamps" / stamp).touch()
        self.user(0)

    def program(self, path: Path, script: str) -> None:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def user(self, number: int) -> None:
        self.program(self.bin / "id", f"echo {number}")

    def apt(self, installs: bool) -> None:
        """Install an apt-get that records its arguments, and whether it could make sshd a service."""
        bring = f'for tool in {" ".join(tools.PACKAGES)}; do touch "$sbin/$tool"; chmod +x "$sbin/$tool"; done'
        lines = [
            f"sbin={self.root}/usr/sbin",
            f'echo "$*" >>{self.root}/apt.log',
            f"[ -e {self.root / NO_SERVICE} ] && echo no service >>{self.root}/apt.log",
            'case "$*" in *" install "*) ' + (bring if installs else "echo no network; exit 100") + " ;; esac",
        ]
        self.program(self.bin / "apt-get", "\n".join(lines))

    @property
    def apt_calls(self) -> list[str]:
        log = self.root / "apt.log"
        return log.read_text().splitlines() if log.exists() else []

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": str(self.bin), "TOOLS_ROOT": str(self.root)}
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.run(command, cwd=ROOT, env=env, text=True, timeout=300, **streams)

    def make(self, *words: str) -> str:
        """Return make's output; it must succeed."""
        done = self.run("make", f"VENV={self.venv}", *words)
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def pytest_line(output: str) -> str:
    """Command line of pytest, which both make and the fake Python print."""
    (line,) = (line for line in output.splitlines() if line.startswith("would run: -m pytest"))
    return line


def test_root_with_apt_is_notified_and_gets_them(machine: Machine) -> None:
    machine.apt(installs=True)
    output = machine.make("test")
    reported, run = output.index("Installing the system packages"), output.index("would run")
    assert reported < run
    assert all(package in output[reported : output.index("\n", reported)] for package in PACKAGES)
    update, *_, install, _ = machine.apt_calls
    assert update.endswith(" update")
    assert set(install.split()) >= PACKAGES
    assert SKIPPED not in output
    folders = ("unit", "ranks", "faults", "cluster")
    assert pytest_line(output).endswith(" ".join(f"integration_tests/{folder}" for folder in folders))
    assert f"remove {machine.root / NO_SERVICE}" in output and (machine.root / NO_SERVICE).exists()
    assert machine.apt_calls.count("no service") == 2, "it stood there before apt-get ran"
    # The next call finds everything installed and prints nothing.
    before = machine.apt_calls
    assert "packages" not in machine.make("test")
    assert machine.apt_calls == before


@pytest.mark.parametrize(
    ("user", "installs"), [(0, False), (1000, True), (0, None)], ids=["no-network", "not-root", "no-apt"]
)
def test_what_cannot_be_had_stops_no_other_test(machine: Machine, user: int, installs: bool | None) -> None:
    machine.user(user)
    if installs is not None:
        machine.apt(installs)
    output = machine.make("test")
    (command,) = (line for line in output.splitlines() if "apt-get update && apt-get install" in line)
    assert set(command.split("install")[1].split()) == PACKAGES
    assert SKIPPED in output and "integration_tests/unit" in pytest_line(output)
    tried = user == 0 and installs is False
    assert (bool(machine.apt_calls), "no network" in output) == (tried, tried)
    assert not (machine.root / NO_SERVICE).exists(), "whoever installs sshd later wants it to run"


def test_folders_and_marks_are_chosen_and_without_the_cluster_nothing_is_installed(machine: Machine) -> None:
    machine.apt(installs=True)
    output = machine.make("test", "TESTS=unit ranks")
    assert "apt-get" not in output and SKIPPED not in output
    assert not machine.apt_calls
    assert pytest_line(output).endswith("integration_tests/unit integration_tests/ranks") and "more" not in output
    assert "--more -m more or needs integration_tests/ranks" in pytest_line(machine.make("test-more", "TESTS=ranks"))


def test_one_command_brings_all_that_a_build_needs(machine: Machine) -> None:
    done = machine.run(".ci/check-tools", "build")
    assert done.returncode == 1
    (command,) = (line for line in done.stdout.splitlines() if "apt-get update && apt-get install" in line)
    assert command.split("install")[1].split() == ["python3", "python3-venv", "python3-dev", "g++", "cmake"]


_WITHOUT_TOOLS = """
import os, sys
import pytest
from paceline.examples.benchmarks.cluster import tools
tools.find, os.geteuid = lambda program: None, lambda: 0
sys.exit(pytest.main(["-q", "-rs", "-p", "no:cacheprovider", "integration_tests/cluster/test_cluster_hosts.py"]))
"""


def test_tests_of_the_cluster_say_what_they_lack() -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT_TOOLS], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SKIPPED" in done.stdout and "failed" not in done.stdout and "error" not in done.stdout
    assert "sshd" in done.stdout and "apt-get install" in done.stdout
