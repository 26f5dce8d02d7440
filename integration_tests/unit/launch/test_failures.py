"""What is passed on of the output of ranks, and what is said of their failure, line by line."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paceline.failure.reports import MARK, Came, Exits, Failed, Left, Report
from paceline.launch import processes
from paceline.launch.failures.output import Output
from paceline.launch.failures.verdict import Verdict


def report(rank: int, what: Report) -> str:
    return f"[{rank}]<stderr>:{MARK}{msgspec.json.encode(what).decode()}\n"


CAME = msgspec.json.encode(Came("a")).decode()
TRACEBACK = """\
[{0}]<stderr>:Traceback (most recent call last):
[{0}]<stderr>:  File "train.py", line 7, in <module>
[{0}]<stderr>:    1 / 0
[{0}]<stderr>:ZeroDivisionError: division by zero
"""
LINES = [line.partition(":")[2] for line in TRACEBACK.splitlines()[1:]]
CAUSE_TEXT = TRACEBACK.format(1)
CAUSE = report(1, Failed(LINES[-1], "train.py, line 7", LINES)) + CAUSE_TEXT
SHUT = "horovod.common.exceptions.HorovodInternalError: {}Horovod has been shut down."
CONSEQUENCE_TEXT = "[0]<stderr>:Traceback (most recent call last):\n[0]<stderr>:" + SHUT.format("") + "\n"
CONSEQUENCE = report(0, Failed(SHUT.format(""), "train.py, line 9", follows="end")) + CONSEQUENCE_TEXT
HOROVODRUN = """\
Traceback (most recent call last):
  File "launch.py", line 837, in run_commandline
    _run(args)
RuntimeError: Horovod detected that one or more processes exited with non-zero status, thus causing the job to be \
terminated. The first process to do so was:
Process name: 0
Exit code: 1

"""
ENDS = "Process 0 exit with status code 1.\nTerminating remaining workers after failure of Process 0.\n"


def said(err: str, out: str = "", code: int = 1, hosts: Any = None) -> tuple[str, str, Verdict]:
    """Collects the lines shown on both streams, and the verdict at the end."""
    shown_out: list[str] = []
    shown_err: list[str] = []
    ranks = Output(shown_out.append, shown_err.append, hosts)
    for piece in out.splitlines(keepends=True):
        ranks.out(piece)
    for piece in err.splitlines(keepends=True):
        ranks.err(piece)
    verdict = ranks.ended(code)
    return "".join(shown_out), "".join(shown_err), verdict


def problems(verdict: Verdict) -> list[str]:
    return [problem for problem, _ in verdict.errors]


def file_of(verdict: Verdict) -> str:
    path = Path(verdict.errors[0][1].rpartition("The output of all ranks: ")[2])
    text = path.read_text()
    path.unlink()
    return text


def test_cause_is_named_although_another_rank_ended_first() -> None:
    out, err, verdict = said(CONSEQUENCE + CAUSE + HOROVODRUN, "[0]<stdout>:hello\n" + ENDS)
    assert (out, err) == ("[0]<stdout>:hello\n", "")
    assert problems(verdict) == ["Rank 1 failed first: ZeroDivisionError: division by zero (train.py, line 7)"]
    assert verdict.errors[0][1].startswith("Exit code 1. After it failed: rank 0. The output")
    assert verdict.lines == ["Traceback of rank 1:", *LINES]
    assert file_of(verdict) == "[0]<stdout>:hello\n" + ENDS + CONSEQUENCE_TEXT + CAUSE_TEXT + HOROVODRUN


def test_python_that_failed_before_it_could_report_is_read() -> None:
    out, err, verdict = said(CONSEQUENCE + CAUSE_TEXT + HOROVODRUN, ENDS)
    assert (out, err) == ("", "")
    assert problems(verdict) == ["Rank 1 failed first: ZeroDivisionError: division by zero (train.py, line 7)"]
    assert verdict.lines == ["Traceback of rank 1:", *LINES]
    file_of(verdict)


def test_first_of_two_causes_is_named() -> None:
    for text in (CAUSE + CAUSE.replace("[1]", "[0]"), CAUSE_TEXT + TRACEBACK.format(0)):
        verdict = said(text)[2]
        assert [problem.partition(":")[0] for problem in problems(verdict)] == ["Rank 1 failed first"]
        file_of(verdict)


def test_errors_of_users_are_said_once_for_all_ranks() -> None:
    failed = Failed("exchange='x' is not known.", "train.py, line 4", [], "Use sync.")
    lines = "[{0}]<stderr>:Paceline: Error in train.py, line 4: exchange='x' is not known.\n"
    _, err, verdict = said("".join(report(rank, failed) + lines.format(rank) for rank in (2, 0, 10)) + HOROVODRUN)
    assert err == ""
    assert problems(verdict) == ["Ranks 0, 2, 10: train.py, line 4: exchange='x' is not known."]
    assert verdict.errors[0][1].startswith("Use sync.")
    file_of(verdict)


def test_ends_without_a_traceback_are_explained() -> None:
    verdict = said(HOROVODRUN, "Process 3 exit with status code 137.\n" + ENDS)[2]
    assert problems(verdict) == ["Rank 3 failed first, with exit code 137: ended by SIGKILL."]
    assert "memory" in verdict.errors[0][1]
    # Others may have more to say of it, or may have been asked to end.
    others = "".join(f"Process {rank} exit with status code {code}.\n" for rank, code in ((2, 143), (0, 1), (3, 5)))
    verdict = said(CONSEQUENCE + "[3]<stderr>:my last line\n" + HOROVODRUN, ENDS.partition("\n")[2] + others)[2]
    assert problems(verdict) == ["Rank 3 failed first, with exit code 5."]
    assert verdict.lines == ["Output of rank 3:", "my last line"]
    assert "no traceback" in verdict.errors[0][1]
    file_of(verdict)
    verdict = said(CONSEQUENCE + HOROVODRUN, "Process 0 exit with status code 1.\n")[2]
    assert problems(verdict)[0].startswith("Rank 0 failed")
    file_of(verdict)


def test_rank_that_exits_is_named_where_others_fail_before_it_has_ended() -> None:
    codes = "Process 0 exit with status code 1.\nProcess 1 exit with status code 143.\n"
    for exits in (report(1, Exits(3)), report(0, Exits(1)) + report(1, Exits(3))):
        verdict = said(exits + CONSEQUENCE + HOROVODRUN, codes)[2]
        assert problems(verdict) == ["Rank 1 failed first, with exit code 3."]
        file_of(verdict)


def test_exit_code_of_ssh_is_explained() -> None:
    out = "Process 1 exit with status code 255.\n"
    verdict = said(HOROVODRUN, out, hosts={0: "localhost", 1: "node2"})[2]
    assert problems(verdict) == ["Rank 1 on node2 failed first, with exit code 255."]
    assert "see `dmesg` on node2" in verdict.errors[0][1]
    verdict = said(HOROVODRUN, out, hosts={0: "localhost", 1: "localhost"})[2]
    assert "ssh" not in verdict.errors[0][1]


def test_script_that_does_not_compile_is_a_python_error() -> None:
    broken = '[1]<stderr>:  File "train.py", line 1\n[1]<stderr>:    def f(:\n[1]<stderr>:          ^\n'
    error = "[1]<stderr>:SyntaxError: invalid syntax\n"
    verdict = said(broken + error + HOROVODRUN, "Process 1 exit with status code 1.\n")[2]
    assert problems(verdict) == ["Rank 1 failed first: SyntaxError: invalid syntax (train.py, line 1)"]
    assert verdict.lines[1:3] == ['  File "train.py", line 1', "    def f(:"]
    file_of(verdict)


def test_rank_that_ends_its_script_before_the_others_is_named() -> None:
    consequence = report(0, Failed(SHUT.format("Gradient of 'fc.weight': "), follows="end"))
    ended = "Process 0 exit with status code 1.\n"
    end = " while rank 0 waits for the gradient of 'fc.weight': uneven data."
    verdict = said(report(1, Left(7)) + consequence + CONSEQUENCE_TEXT + HOROVODRUN, ended)[2]
    assert problems(verdict) == ["Rank 1 ended its script after 7 steps" + end]
    assert "hvd.join()" in verdict.errors[0][1]
    file_of(verdict)
    verdict = said(consequence + CONSEQUENCE_TEXT + HOROVODRUN, ended, hosts={0: "a", 1: "b"})[2]
    assert problems(verdict) == ["Rank 1 on b ended its script" + end]
    file_of(verdict)


def test_traceback_of_a_rank_that_goes_on_is_shown_and_no_reason() -> None:
    shown: list[str] = []
    ranks = Output(shown.append, shown.append, hold_s=0.1)
    for piece in CAUSE.splitlines(keepends=True):
        ranks.err(piece)
    until_s = time.monotonic() + 30
    while "".join(shown) != CAUSE_TEXT:
        assert time.monotonic() < until_s, shown
        time.sleep(0.01)
    ranks.out("Process 0 exit with status code 3.\n")
    assert problems(ranks.ended(1)) == ["Rank 0 failed first, with exit code 3."]


def test_rank_that_begins_again_shows_what_was_held_of_it() -> None:
    shown: list[str] = []
    ranks = Output(shown.append, shown.append)
    for piece in (CAUSE + report(1, Came("a")) + CAUSE_TEXT).splitlines(keepends=True):
        ranks.err(piece)
    assert "".join(shown) == CAUSE_TEXT + CAUSE_TEXT, "one that was handled after hvd.init() is not held"
    assert ranks.ended(0).errors == []


def test_what_horovod_logs_of_another_ranks_failure_is_held() -> None:
    log = "[0]<stderr>:[2026-11-26 22:18:19.9: E ../failure.cc:126] Rank 1 could not go on: its stage failed:\n"
    quoted = "[0]<stderr>:Stage 1 failed.\n" + TRACEBACK.format(0)
    failed = report(0, Failed("StageFailed: Rank 1 could not go on: its stage failed:", follows="failure"))
    _, err, verdict = said(report(0, Came("a")) + log + quoted + failed + CAUSE + HOROVODRUN)
    assert err == ""
    assert problems(verdict) == ["Rank 1 failed first: ZeroDivisionError: division by zero (train.py, line 7)"]
    assert file_of(verdict).count("Stage 1 failed.") == 1


def test_interrupted_run_has_a_reason_only_where_a_rank_has_failed_before() -> None:
    ranks = Output(print, print)
    for piece in CONSEQUENCE.splitlines(keepends=True):
        ranks.err(piece)
    assert ranks.ended(130, interrupted=True).errors == []
    for piece in CAUSE.splitlines(keepends=True):
        ranks.err(piece)
    verdict = ranks.ended(130, interrupted=True)
    assert [problem.partition(":")[0] for problem in problems(verdict)] == ["Rank 1 failed first"]
    file_of(verdict)


def test_what_went_well_and_what_is_not_understood_is_passed_on() -> None:
    logged = "[0]<stderr>:Paceline: exchange=... begins\nplain\n" + CAUSE_TEXT + "[1]<stderr>:goes on\n"
    out, err, verdict = said(logged, "x\r 1%\r 2%\n", code=0)
    assert (out, sorted(err), verdict.errors) == ("x\r 1%\r 2%\n", sorted(logged), [])
    other = HOROVODRUN.replace("RuntimeError: Horovod detected", "OSError: detected")
    assert said(other)[1] == other
    cut = "Traceback (most recent call last):\n  File"
    assert said(cut)[1] == cut


@pytest.mark.parametrize(
    ("piece", "left", "came"),
    [
        (f"[1]<stderr>:loading 50%{MARK}{CAME}\n", "[1]<stderr>:loading 50%\n", [1]),
        (f"Mon Nov 24 10:00:00 2025[1]<stderr>:{MARK}{CAME}\n", "", [1]),  # with a timestamp
        (f"[1,1]<stderr>:{MARK}{CAME}\n", "", [1]),  # under MPI
        (f"[1]<stdout>:{MARK}{CAME}\n", "", [1]),  # of a script whose errors go where its output goes
        (f"{MARK}{CAME}\n", None, []),  # of no rank
        (f"[1]<stderr>:{MARK}a quiet day\n", None, []),
    ],
)
def test_reports_are_read_and_lines_of_others_left_as_they_are(piece: str, left: str | None, came: list[int]) -> None:
    shown: list[str] = []
    found: list[int] = []
    ranks = Output(shown.append, shown.append, on_report=lambda rank, what: found.append(rank))
    (ranks.out if "stdout" in piece else ranks.err)(piece)
    assert ("".join(shown), found) == (piece if left is None else left, came)


def test_streams_stay_apart_and_come_in_pieces() -> None:
    script = "import sys; sys.stdout.write('a\\r10%\\rb\\r\\nend'); sys.stderr.write('e\\n')"
    out: list[str] = []
    err: list[str] = []
    code = processes.call([sys.executable, "-c", script], {}, out.append, err.append)
    assert (code, out, err) == (0, ["a\r", "10%\r", "b\r\n", "end"], ["e\n"])


def test_reader_that_has_seen_enough_ends_nothing() -> None:
    code = (
        "from paceline.launch.failures.output import Output, writer\n"
        "ranks = Output(writer('stdout'), writer('stderr'))\n"
        "for _ in range(20000): ranks.out('[0]<stdout>:epoch\\n')\n"
        "ranks.err('still here\\n')\n"
    )
    done = subprocess.run(
        ["sh", "-c", '"$0" -c "$1" | head -n 1', sys.executable, code], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("[0]<stdout>:epoch\n", "still here\n")


def test_hosts_that_ssh_does_not_reach_are_two_lines() -> None:
    failed = "ssh not successful for host node1:\n/bin/sh: 1: ssh: not found\n\n"
    own = (
        'Traceback (most recent call last):\n  File "launch.py", line 655, in _run_static\n    raise RuntimeError\n'
        "RuntimeError: could not connect to some hosts via ssh\n"
    )
    _, err, verdict = said(failed + own)
    ((problem, remedy),) = verdict.errors
    assert err == failed
    assert problem == "horovodrun does not reach the hosts named above by ssh."
    assert "ssh HOST true" in remedy
