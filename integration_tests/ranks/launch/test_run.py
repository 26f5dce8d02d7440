"""`paceline run`: its messages at the start, and a dry run that starts nothing. Failures: test_first_failure.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from integration_tests.support.more import more
from integration_tests.support.processes import PACELINE, finished

RUN = [*PACELINE, "run"]
SCRIPT = """
import sys, time
import horovod.torch as hvd, torch
hvd.init()
hvd.broadcast(torch.ones(2), 0, name="before")
time.sleep(1)
sys.stderr.write("%d broadcasts\\n" % hvd.rank())
for _ in range(50):
    hvd.allreduce(torch.ones(2), name="gradient")
if len(sys.argv) > 1:
    time.sleep(1)
sys.stderr.write("%d is done\\n" % hvd.rank())
"""


def run(folder: Path, *words: str, given: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(SCRIPT)
    command = [*RUN, *words, "-np", "2", sys.executable, "train.py", *given.split()]
    done = finished(*command, folder=folder, env=variables)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("given", ["and stay", more("")], ids=["training", "short"])
def test_start_is_reported_in_two_lines(given: str, tmp_path: Path) -> None:
    lines = run(tmp_path, given=given).stderr.splitlines()
    (up,) = (
        at for at, line in enumerate(lines) if re.fullmatch(r"Up after \d+\.\d s: localhost, with 2 ranks\.", line)
    )
    (first,) = (at for at, line in enumerate(lines) if line.startswith("First step after "))
    (broadcasts,) = (at for at, line in enumerate(lines) if line.startswith("[0]<stderr>:0 broadcasts"))
    (done,) = (at for at, line in enumerate(lines) if line == "[0]<stderr>:0 is done")
    assert up < broadcasts < first, "broadcasts are no step"
    assert first < done or not given
    reported = [line for line in lines if "Paceline" in line and "fusion=optimal: " not in line]
    assert not reported, "what ranks tell the launcher is not the user's"


@pytest.mark.parametrize(
    ("words", "variables"),
    [(["--no-progress"], {}), more([], {"PACELINE_PROGRESS": "0"}), more(["--output-filename", "said"], {})],
    ids=["flag", "variable", "files of ranks"],
)
def test_start_is_not_reported_where_that_is_not_wanted(
    words: list[str], variables: dict[str, str], tmp_path: Path
) -> None:
    done = run(tmp_path, *words, **variables)
    said = done.stderr + "".join(path.read_text() for path in tmp_path.glob("said/*/std*"))
    assert said.count("is done") >= 2
    for words_of_start in ("Up after", "First step", "came to hvd.init()"):
        assert words_of_start not in said


_TRAINS = """
import os, pathlib, time
import horovod.torch as hvd
hvd.init()
pathlib.Path(f"{hvd.rank()}.pid").write_text(str(os.getpid()))
time.sleep(100)
"""


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_nothing_trains_on_when_the_command_is_killed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_TRAINS)
    process = subprocess.Popen([*RUN, "-np", "2", sys.executable, "train.py"], cwd=tmp_path)
    try:
        until_s = time.monotonic() + 60
        while len([path for path in tmp_path.glob("*.pid") if path.read_text()]) < 2:
            assert time.monotonic() < until_s and process.poll() is None
            time.sleep(0.05)
        pids = [int(path.read_text()) for path in tmp_path.glob("*.pid")]
        assert all(map(_lives, pids))
    finally:
        process.kill()
        process.wait()
    until_s = time.monotonic() + 90  # Horovod waits for 5 s twice before it kills
    while left := [pid for pid in pids if _lives(pid)]:
        assert time.monotonic() < until_s, left
        time.sleep(0.05)


def test_a_trace_and_the_first_step_do_not_disturb_each_other(tmp_path: Path) -> None:
    done = run(tmp_path, "--record", str(tmp_path / "trace.json"))
    assert "First step after " in done.stderr
    assert sum(path.read_text().count('"allreduce"') for path in tmp_path.glob("trace.json.rank*")) >= 50


def test_errors_in_a_file_of_the_users_stay_the_users(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = [*RUN, "-np", "1", "sh", "-c", f"{sys.executable} train.py 2>errors"]
    subprocess.run(words, capture_output=True, check=True, timeout=300, cwd=tmp_path)
    assert "is done" in (tmp_path / "errors").read_text()
    assert "Paceline" not in (tmp_path / "errors").read_text()


def test_a_dry_run_prints_hosts_variables_and_command() -> None:
    words = [*RUN, "--dry-run", "--fusion", "optimal", "-np", "3", "-H", "a:2,b:2", "sh", "-c", "echo 'never said'"]
    environ = {**os.environ, "HOROVOD_CYCLE_TIME": "2"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=150, env=environ)
    assert done.returncode == 0, done.stderr
    *lines, command = done.stdout.splitlines()
    assert lines == [
        "# a: rank 0, 1", "# b: rank 2", "HOROVOD_CYCLE_TIME=2", "PACELINE_FUSION=optimal", "PACELINE_PROGRESS=yes",
        "_PACELINE_PLANS=yes",
    ]  # fmt: skip
    assert command.endswith("""-np 3 -H a:2,b:2 sh -c 'echo '"'"'never said'"'"''""")
