"""What is passed on of the output of ranks, and what is said of their failure, line by line."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from paceline.launch import processes
from paceline.launch.failures.ranks import Ranks
from paceline.launch.failures.reason import Report
from paceline.launch.failures.tracebacks import HEADER

CAUSE = """\
[1]<stderr>:Traceback (most recent call last):
[1]<stderr>:  File "train.py", line 7, in <module>
[1]<stderr>:    1 / 0
[1]<stderr>:ZeroDivisionError: division by zero
"""
CONSEQUENCE = """\
[0]<stderr>:Traceback (most recent call last):
[0]<stderr>:  File "train.py", line 9, in <module>
[0]<stderr>:RuntimeError: Horovod has been shut down.
[0]<stderr>:During handling of the above exception, another exception occurred:
[0]<stderr>:Traceback (most recent call last):
[0]<stderr>:  File "train.py", line 9, in <module>
[0]<stderr>:horovod.common.exceptions.HorovodInternalError: Horovod has been shut down.
"""
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


def said(err: str, out: str = "", code: int = 1, **known: Any) -> tuple[str, str, Report]:
    """Collects the lines shown on both streams, and the report at the end."""
    shown_out: list[str] = []
    shown_err: list[str] = []
    ranks = Ranks(shown_out.append, shown_err.append, known.get("hosts"))
    for piece in out.splitlines(keepends=True):
        ranks.out(piece)
    for piece in err.splitlines(keepends=True):
        ranks.err(piece)
    report = ranks.ended(code, known.get("left"), known.get("exits"))
    return "".join(shown_out), "".join(shown_err), report


def problems(report: Report) -> list[str]:
    return [error.problem for error in report.errors]


def file_of(report: Report) -> str:
    path = Path(report.errors[0].remedy.rpartition("The output of all ranks: ")[2])
    text = path.read_text()
    path.unlink()
    return text


def test_cause_is_named_although_another_rank_ended_first() -> None:
    out, err, report = said(CONSEQUENCE + CAUSE + HOROVODRUN, "[0]<stdout>:hello\n" + ENDS)
    assert (out, err) == ("[0]<stdout>:hello\n", "")
    assert problems(report) == ["Rank 1 failed first: ZeroDivisionError: division by zero (train.py, line 7)"]
    assert report.lines == ["Traceback of rank 1:", *(line.partition(":")[2] for line in CAUSE.splitlines()[1:])]
    assert file_of(report) == "[0]<stdout>:hello\n" + ENDS + CONSEQUENCE + CAUSE + HOROVODRUN


def test_first_of_two_causes_is_named() -> None:
    report = said(CAUSE + CAUSE.replace("[1]", "[0]"))[2]
    assert [problem.partition(":")[0] for problem in problems(report)] == ["Rank 1 failed first"]
    file_of(report)


def test_errors_of_users_are_said_once_for_all_ranks() -> None:
    one = "Paceline: Error in train.py, line 4: exchange='x' is not known.\n[{0}]<stderr>:Paceline: Use sync.\n"
    _, err, report = said("".join(f"[{rank}]<stderr>:" + one.format(rank) for rank in (2, 0, 10)) + HOROVODRUN)
    assert err == ""
    assert problems(report) == ["Ranks 0, 2, 10: train.py, line 4: exchange='x' is not known."]
    assert report.errors[0].remedy == "Use sync."


def test_cause_is_the_reason_and_not_an_error_that_follows_from_it() -> None:
    user = "[0]<stderr>:Paceline: Error in train.py, line 9: ranks did not meet.\n[0]<stderr>:Paceline: Look there.\n"
    report = said(CAUSE + user + HOROVODRUN)[2]
    assert [problem.partition(":")[0] for problem in problems(report)] == ["Rank 1 failed first"]
    assert "ranks did not meet" in file_of(report)


def test_ends_without_a_traceback_are_explained() -> None:
    report = said(HOROVODRUN, "Process 3 exit with status code 137.\n" + ENDS)[2]
    assert problems(report) == ["Rank 3 failed first, with exit code 137: ended by SIGKILL."]
    assert "memory" in report.errors[0].remedy
    # Others may have more to say of it, or may have been asked to end.
    others = "".join(f"Process {rank} exit with status code {code}.\n" for rank, code in ((2, 143), (0, 1), (3, 5)))
    report = said(CONSEQUENCE + "[3]<stderr>:my last line\n" + HOROVODRUN, others)[2]
    assert problems(report) == ["Rank 3 failed first, with exit code 5."]
    assert report.lines == ["[3]<stderr>:my last line"]
    assert "no traceback" in report.errors[0].remedy
    file_of(report)
    report = said(CONSEQUENCE + HOROVODRUN, "Process 0 exit with status code 1.\n")[2]
    assert problems(report)[0].startswith("Rank 0 failed")
    file_of(report)


def test_rank_that_exits_is_named_where_others_fail_before_it_has_ended() -> None:
    codes = "Process 0 exit with status code 1.\nProcess 1 exit with status code 143.\n"
    report = said(CONSEQUENCE + HOROVODRUN, codes, exits={1: 3})[2]
    assert problems(report) == ["Rank 1 failed first, with exit code 3."]
    file_of(report)
    report = said(CONSEQUENCE + HOROVODRUN, codes, exits={0: 1, 1: 3})[2]  # rank 0 told of what it met, and exited
    assert problems(report) == ["Rank 1 failed first, with exit code 3."]
    file_of(report)


def test_exit_code_of_ssh_is_explained() -> None:
    out = "Process 1 exit with status code 255.\n"
    report = said(HOROVODRUN, out, hosts={0: "localhost", 1: "node2"})[2]
    assert problems(report) == ["Rank 1 on node2 failed first, with exit code 255."]
    assert "see `dmesg` on node2" in report.errors[0].remedy
    report = said(HOROVODRUN, out, hosts={0: "localhost", 1: "localhost"})[2]
    assert "ssh" not in report.errors[0].remedy


def test_script_that_does_not_compile_is_a_python_error() -> None:
    broken = '[1]<stderr>:  File "train.py", line 1\n[1]<stderr>:    def f(:\n[1]<stderr>:          ^\n'
    error = "[1]<stderr>:SyntaxError: invalid syntax\n"
    report = said(broken + error + HOROVODRUN, "Process 1 exit with status code 1.\n")[2]
    assert problems(report) == ["Rank 1 failed first: SyntaxError: invalid syntax (train.py, line 1)"]
    assert report.lines[1:3] == ['  File "train.py", line 1', "    def f(:"]
    file_of(report)


def test_rank_that_ends_its_script_before_the_others_is_named() -> None:
    consequence = CONSEQUENCE.replace("Error: Horovod", "Error: Gradient of 'fc.weight': Horovod")
    ended = "Process 0 exit with status code 1.\n"
    report = said(consequence + HOROVODRUN, ended, left={1: 7})[2]
    end = " while rank 0 waits for the gradient of 'fc.weight': uneven data."
    assert problems(report) == ["Rank 1 ended its script after 7 steps" + end]
    assert "hvd.join()" in report.errors[0].remedy
    file_of(report)
    report = said(consequence + HOROVODRUN, ended, hosts={0: "a", 1: "b"})[2]
    assert problems(report) == ["Rank 1 ended its script" + end]
    file_of(report)


def test_traceback_of_a_rank_that_goes_on_is_shown_and_no_reason() -> None:
    shown: list[str] = []
    ranks = Ranks(shown.append, shown.append, alive_s=0.1)
    for piece in CAUSE.splitlines(keepends=True):
        ranks.err(piece)
    time.sleep(0.2)
    ranks.out("[1]<stdout>:goes on\n")
    until_s = time.monotonic() + 30
    while "".join(shown) != "[1]<stdout>:goes on\n" + CAUSE:
        assert time.monotonic() < until_s, shown
        time.sleep(0.01)
    ranks.out("Process 0 exit with status code 3.\n")
    assert problems(ranks.ended(1)) == ["Rank 0 failed first, with exit code 3."]


def test_another_ranks_traceback_in_a_message_is_no_cause() -> None:
    log = "[0]<stderr>:[2026-11-26 22:18:19.9: E ../failure.cc:126] Rank 1 could not go on: its stage failed:\n"
    quoted = "[{0}]<stderr>:Stage 1 failed.\n" + CAUSE.replace("[1]", "[{0}]") + "[{0}]<stderr>:\n"
    own = log.replace("[0]", "[1]") + quoted.format(1) + CAUSE
    report = said(log + quoted.format(0) + own + HOROVODRUN)[2]
    assert problems(report) == ["Rank 1 failed first: ZeroDivisionError: division by zero (train.py, line 7)"]
    file_of(report)


def test_log_of_horovod_between_the_lines_of_a_traceback() -> None:
    header, *frames = CAUSE.splitlines(keepends=True)
    log = "[1]<stderr>:2026-11-26 22:18:19.9: E ../operations.cc:740] [1]: uncaught exception\n"
    report = said("".join([header.replace(">:", ">:["), frames[0], log, *frames[1:]]) + HOROVODRUN)[2]
    assert problems(report) == ["Rank 1 failed first: ZeroDivisionError: division by zero (train.py, line 7)"]
    file_of(report)


def test_interrupted_run_has_a_reason_only_where_a_rank_has_failed_before() -> None:
    ranks = Ranks(print, print)
    for piece in CONSEQUENCE.splitlines(keepends=True):
        ranks.err(piece)
    assert ranks.ended(130, interrupted=True).errors == []
    for piece in CAUSE.splitlines(keepends=True):
        ranks.err(piece)
    report = ranks.ended(130, interrupted=True)
    assert [problem.partition(":")[0] for problem in problems(report)] == ["Rank 1 failed first"]
    file_of(report)


def test_long_traceback_is_cut_to_the_users_frames() -> None:
    mark = "[0]<stderr>:"
    frames = "".join(f'{mark}  File "train.py", line {n}, in f{n}\n{mark}    f{n + 1}()\n' for n in range(99))
    library = '[0]<stderr>:  File "/x/site-packages/torch/t.py", line 1, in g\n[0]<stderr>:    raise\n'
    text = f"[0]<stderr>:{HEADER}\n{frames}{library}[0]<stderr>:KeyError: 1\n[0]<stderr>:more of it\n"
    report = said(text + HOROVODRUN, "Process 0 exit with status code 1.\n")[2]
    assert report.lines[1:3] == ["  (92 frames left out)", '  File "train.py", line 92, in f92']
    assert report.lines[-3:] == ["  (1 frame left out)", "KeyError: 1", "more of it"]
    assert len(report.lines) <= 20
    assert file_of(report).count("train.py") == 99


def test_what_went_well_and_what_is_not_understood_is_passed_on() -> None:
    logged = "[0]<stderr>:Paceline: exchange=... begins\nplain\n" + CAUSE + "[1]<stderr>:goes on\n"
    out, err, report = said(logged, "x\r 1%\r 2%\n", code=0)
    assert (out, err, report.errors) == ("x\r 1%\r 2%\n", logged, [])
    other = HOROVODRUN.replace("RuntimeError: Horovod detected", "OSError: detected")
    assert said(other)[1] == other
    cut = "Traceback (most recent call last):\n  File"
    assert said(cut)[1] == cut


def test_streams_stay_apart_and_come_in_pieces() -> None:
    script = "import sys; sys.stdout.write('a\\r10%\\rb\\r\\nend'); sys.stderr.write('e\\n')"
    out: list[str] = []
    err: list[str] = []
    code = processes.call([sys.executable, "-c", script], {}, on_pieces=(out.append, err.append))
    assert (code, out, err) == (0, ["a\r", "10%\r", "b\r\n", "end"], ["e\n"])


def test_reader_that_has_seen_enough_ends_nothing() -> None:
    code = (
        "from paceline.launch.failures.ranks import passed_on\n"
        "ranks = passed_on(lambda write: write, {})\n"
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
    _, err, report = said(failed + own)
    (error,) = report.errors
    assert err == failed
    assert error.problem == "horovodrun does not reach the hosts named above by ssh."
    assert "ssh HOST true" in error.remedy
