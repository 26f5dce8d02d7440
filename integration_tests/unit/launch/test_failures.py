"""What is passed on of the output of ranks, and what is said of their failure, line by line."""

from __future__ import annotations

import subprocess
import sys

from paceline.launch import processes
from paceline.launch.failures import Ranks

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


def said(err: str, out: str = "", code: int = 1) -> tuple[str, str, list[tuple[str, str]]]:
    """What is shown on both streams, and the errors at the end."""
    shown_out: list[str] = []
    shown_err: list[str] = []
    ranks = Ranks(shown_out.append, shown_err.append)
    for piece in out.splitlines(keepends=True):
        ranks.out(piece)
    for piece in err.splitlines(keepends=True):
        ranks.err(piece)
    errors = ranks.ended(code)
    return "".join(shown_out), "".join(shown_err), [(error.problem, error.remedy) for error in errors]


def test_cause_is_named_although_another_rank_ended_first() -> None:
    out, err, errors = said(CONSEQUENCE + CAUSE + HOROVODRUN, "[0]<stdout>:hello\n" + ENDS)
    assert out == "[0]<stdout>:hello\n"
    assert err == CONSEQUENCE + CAUSE, "horovodrun's own traceback says nothing"
    ((problem, remedy),) = errors
    assert problem == "Rank 1 failed first: ZeroDivisionError: division by zero (train.py, line 7)"
    assert "lines marked [1]<stderr>" in remedy


def test_first_of_two_causes_is_named() -> None:
    errors = said(CAUSE + CAUSE.replace("[1]", "[0]"))[2]
    assert [problem.partition(":")[0] for problem, _ in errors] == ["Rank 1 failed first"]


def test_errors_of_users_are_said_once_for_all_ranks() -> None:
    one = "Paceline: Error in train.py, line 4: exchange='x' is not known.\n[{0}]<stderr>:Paceline: Use sync.\n"
    _, err, errors = said("".join(f"[{rank}]<stderr>:" + one.format(rank) for rank in (2, 0, 10)) + HOROVODRUN)
    assert err == ""
    assert errors == [("Ranks 0, 2, 10: train.py, line 4: exchange='x' is not known.", "Use sync.")]


def test_cause_comes_before_an_error_that_follows_from_it() -> None:
    user = "[0]<stderr>:Paceline: Error in train.py, line 9: ranks did not meet.\n[0]<stderr>:Paceline: Look there.\n"
    errors = said(CAUSE + user + HOROVODRUN)[2]
    assert [problem.partition(":")[0] for problem, _ in errors] == ["Rank 1 failed first", "Rank 0"]


def test_ends_without_a_word_are_explained() -> None:
    ((problem, remedy),) = said(HOROVODRUN, "Process 3 exit with status code 137.\n" + ENDS)[2]
    assert problem == "Rank 3 failed first, with exit code 137: ended by SIGKILL."
    assert "memory" in remedy
    # Others may have more to say of it, or may have been asked to end.
    others = (
        "Process 2 exit with status code 143.\nProcess 0 exit with status code 1.\nProcess 3 exit with status code 5.\n"
    )
    assert said(CONSEQUENCE + HOROVODRUN, others)[2][0][0] == "Rank 3 failed first, with exit code 5."
    assert said(CONSEQUENCE + HOROVODRUN, "Process 0 exit with status code 1.\n")[2][0][0].startswith("Rank 0 failed")


def test_what_went_well_and_what_is_not_understood_is_passed_on() -> None:
    logged = CAUSE + "[1]<stderr>:goes on\n[0]<stderr>:Paceline: exchange=... begins\nplain\n"
    assert said(logged, "x\r 1%\r 2%\n", code=0) == ("x\r 1%\r 2%\n", logged, [])
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
        "from paceline.launch.failures import passed_on\n"
        "ranks = passed_on(lambda write: write)\n"
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
    _, err, ((problem, remedy),) = said(failed + own)
    assert err == failed
    assert problem == "horovodrun does not reach the hosts named above by ssh." and "ssh HOST true" in remedy
