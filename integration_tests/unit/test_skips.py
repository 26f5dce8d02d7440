"""`--strict-skips`: a skip that nobody expects fails the run, at the call, in a fixture and of a whole module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from integration_tests.support.packages import ROOT
from integration_tests.support.skips import expected
from paceline.errors import UserError
from paceline.examples.benchmarks.cluster import tools

CASES = {
    "import pytest\n\ndef test_one():\n    pytest.skip('no such luck')\n": 1,
    "import pytest\npytest.importorskip('no_such_module')\n": 1,
    "import pytest\n\ndef test_one():\n    pytest.skip('this machine has no network interface but loopback')\n": 0,
    "import pytest\n\n@pytest.mark.xfail\ndef test_one():\n    assert False\n": 0,
}


def run(folder: Path, source: str, *words: str) -> subprocess.CompletedProcess[str]:
    """pytest with our settings on a module of `source` and one that passes."""
    (folder / "test_it.py").write_text(source)
    (folder / "test_other.py").write_text("def test_that_passes(): ...\n")
    words = ("-q", "-rs", "-p", "no:cacheprovider", "-p", "integration_tests.conftest", "--strict-skips", *words)
    command = [sys.executable, "-m", "pytest", *words, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize(("source", "code"), CASES.items())
def test_unexpected_skips_fail_the_run(source: str, code: int, tmp_path: Path) -> None:
    done = run(tmp_path, source)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("skips that are not expected" in done.stdout) is bool(code)


def test_a_run_that_has_no_time_left_says_how_many_tests_it_left_out(tmp_path: Path) -> None:
    done = run(tmp_path, "import time\n\ndef test_one(): time.sleep(2)\n", "--within", "1.5")
    assert done.returncode == 0 and "1 passed, 1 skipped" in done.stdout, done.stdout + done.stderr
    assert "the time of this run is over: 1.5 s (--within)" in done.stdout


def test_what_a_cluster_lacks_without_root_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(UserError) as caught:
        tools.check()
    assert expected(f"{caught.value.problem} {caught.value.remedy}")
