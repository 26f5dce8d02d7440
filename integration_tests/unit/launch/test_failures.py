"""Ranks' reports of failures, the choice of the first one, and the message."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from horovod.common.exceptions import HorovodInternalError

from paceline import uncaught
from paceline.errors import ranks_lost
from paceline.failure import consequences, excerpt
from paceline.failure.consequences import END, FAILURE
from paceline.failure.reports import MARK, Came, Exits, Failed, Left, Report
from paceline.launch import processes
from paceline.launch.failures.output import Output
from paceline.launch.failures.verdict import Fate, Verdict, decide
from paceline.native import communicator


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


def exits(*ranks: tuple[int, int]) -> str:
    """Output of horovodrun for ranks that ended with these codes."""
    return "".join(f"Process {rank} exit with status code {code}.\n" for rank, code in ranks)


OTHERS_END = "Terminating remaining workers after failure of Process 0.\n"
ENDS = exits((0, 1)) + OTHERS_END
CAUSE_SAID = "Rank 1 failed first: ZeroDivisionError: division by zero (train.py, line 7)"


@pytest.fixture(autouse=True)
def _files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def said(err: str, out: str = "", code: int = 1, hosts: Any = None) -> tuple[str, str, Verdict]:
    """Pass output through; return the lines shown on both streams, and the verdict."""
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


def text_of_file(verdict: Verdict) -> str:
    return Path(verdict.errors[0][1].rpartition("The output of all ranks: ")[2]).read_text()


def test_cause_is_named_although_another_rank_ended_first() -> None:
    out, err, verdict = said(CONSEQUENCE + CAUSE + HOROVODRUN, "[0]<stdout>:hello\n" + ENDS)
    assert (out, err) == ("[0]<stdout>:hello\n", "")
    assert problems(verdict) == [CAUSE_SAID]
    assert verdict.errors[0][1].startswith("Exit code 1. After it failed: rank 0. The output")
    assert verdict.lines == ["Traceback of rank 1:", *LINES]
    assert text_of_file(verdict) == "[0]<stdout>:hello\n" + ENDS + CONSEQUENCE_TEXT + CAUSE_TEXT + HOROVODRUN


USERS = Failed("exchange='x' is not known.", "train.py, line 4", [], "Use sync.")
USERS_LINE = "[{0}]<stderr>:Paceline: Error in train.py, line 4: exchange='x' is not known.\n"
NOT_COMPILED = """\
[1]<stderr>:  File "train.py", line 1
[1]<stderr>:    def f(:
[1]<stderr>:          ^
[1]<stderr>:SyntaxError: invalid syntax
"""
WAITS = report(0, Failed(SHUT.format("Gradient of 'fc.weight': "), follows="end")) + CONSEQUENCE_TEXT
UNEVEN = " while rank 0 waits for the gradient of 'fc.weight': uneven data."
TWO_ENDS = exits((0, 1), (1, 143))
HOSTS = {0: "localhost", 1: "node2"}


@pytest.mark.parametrize(
    ("err", "out", "hosts", "problem", "remedy", "lines"),
    [
        # Python that failed before it could report.
        (CONSEQUENCE + CAUSE_TEXT, ENDS, None, CAUSE_SAID, "", ["Traceback of rank 1:", *LINES]),
        (NOT_COMPILED, exits((1, 1)), None, "Rank 1 failed first: SyntaxError: invalid syntax (train.py, line 1)", "",
         ["Traceback of rank 1:", '  File "train.py", line 1', "    def f(:"]),
        # The first of two causes.
        (CAUSE + CAUSE.replace("[1]", "[0]"), "", None, CAUSE_SAID, "", []),
        (CAUSE_TEXT + TRACEBACK.format(0), "", None, CAUSE_SAID, "", []),
        # A user error, once for all ranks.
        ("".join(report(rank, USERS) + USERS_LINE.format(rank) for rank in (2, 0, 10)), "", None,
         "Ranks 0, 2, 10: train.py, line 4: exchange='x' is not known.", "Use sync.", []),
        # Ends without a traceback. Others may give more details, or may have been asked to end.
        ("", exits((3, 137)) + ENDS, None, "Rank 3 failed first, with exit code 137: ended by SIGKILL.", "memory", []),
        (CONSEQUENCE + "[3]<stderr>:my last line\n", OTHERS_END + exits((2, 143), (0, 1), (3, 5)), None,
         "Rank 3 failed first, with exit code 5.", "no traceback", ["Output of rank 3:", "my last line"]),
        (CONSEQUENCE, exits((0, 1)), None, "Rank 0 failed", "", []),
        # A rank that exits, where others fail before it has ended.
        (report(1, Exits(3)) + CONSEQUENCE, TWO_ENDS, None, "Rank 1 failed first, with exit code 3.", "", []),
        (report(0, Exits(1)) + report(1, Exits(3)) + CONSEQUENCE, TWO_ENDS, None,
         "Rank 1 failed first, with exit code 3.", "", []),
        # ssh.
        ("", exits((1, 255)), HOSTS, "Rank 1 on node2 failed first, with exit code 255.", "see `dmesg` on node2", []),
        # A rank that ends its script before the others.
        (report(1, Left(7)) + WAITS, exits((0, 1)), None, "Rank 1 ended its script after 7 steps" + UNEVEN,
         "hvd.join()", []),
        (WAITS, exits((0, 1)), {0: "a", 1: "b"}, "Rank 1 on b ended its script" + UNEVEN, "", []),
    ],
)  # fmt: skip
def test_first_failure_is_named(err: str, out: str, hosts: Any, problem: str, remedy: str, lines: list[str]) -> None:
    _, shown, verdict = said(err + HOROVODRUN, out, hosts=hosts)
    (found,) = problems(verdict)
    assert (shown, found.startswith(problem)) == ("", True), found
    assert remedy in verdict.errors[0][1]
    assert verdict.lines[: len(lines)] == lines


def test_exit_code_of_a_rank_of_this_host_says_nothing_of_ssh() -> None:
    assert "ssh" not in said(HOROVODRUN, exits((1, 255)), hosts={0: "localhost", 1: "localhost"})[2].errors[0][1]


def test_traceback_of_a_rank_that_goes_on_or_begins_again_is_shown() -> None:
    shown: list[str] = []
    ranks = Output(shown.append, shown.append, hold_s=0.1)
    for piece in CAUSE.splitlines(keepends=True):
        ranks.err(piece)
    until_s = time.monotonic() + 90
    while "".join(shown) != CAUSE_TEXT:
        assert time.monotonic() < until_s, shown
        time.sleep(0.01)
    ranks.out("Process 0 exit with status code 3.\n")
    assert problems(ranks.ended(1)) == ["Rank 0 failed first, with exit code 3."]
    # A rank that begins again shows its held output.
    shown = []
    ranks = Output(shown.append, shown.append)
    for piece in (CAUSE + report(1, Came("a")) + CAUSE_TEXT).splitlines(keepends=True):
        ranks.err(piece)
    assert "".join(shown) == CAUSE_TEXT + CAUSE_TEXT, "one that was handled after hvd.init() is not held"
    assert ranks.ended(0).errors == []


@pytest.mark.parametrize("other", ["", "[", "[2026-11-26 22:18:1", "[2026-11-26 22:18:19.9: E "])
def test_what_horovod_logs_of_another_ranks_failure_is_held(other: str) -> None:
    """`other`: beginning of a log line that another thread of the rank has written already."""
    head = f"[0]<stderr>:{other}[2026-11-26 22:18:19.9: E"
    log = f"{head} ../failure.cc:126] Rank 1 could not go on: its stage failed:\n"
    quoted = "[0]<stderr>:Stage 1 failed.\n" + TRACEBACK.format(0)
    failed = report(0, Failed("StageFailed: Rank 1 could not go on: its stage failed:", follows="failure"))
    _, err, verdict = said(report(0, Came("a")) + log + quoted + failed + CAUSE + HOROVODRUN)
    assert err == ""
    assert problems(verdict) == [CAUSE_SAID]
    assert text_of_file(verdict).count("Stage 1 failed.") == 1


def test_interrupted_run_has_a_reason_only_where_a_rank_has_failed_before() -> None:
    ranks = Output(print, print)
    for piece in CONSEQUENCE.splitlines(keepends=True):
        ranks.err(piece)
    assert ranks.ended(130, interrupted=True).errors == []
    for piece in CAUSE.splitlines(keepends=True):
        ranks.err(piece)
    verdict = ranks.ended(130, interrupted=True)
    assert [problem.partition(":")[0] for problem in problems(verdict)] == ["Rank 1 failed first"]


def test_horovodruns_traceback_is_held_where_its_header_stands_behind_a_ranks_last_words() -> None:
    words = "[0]<stderr>:Terminated"
    assert said(words + HOROVODRUN)[1] == f"{words}Traceback (most recent call last):\n"


def test_what_is_not_understood_is_passed_on_and_streams_stay_apart() -> None:
    logged = "[0]<stderr>:Paceline: exchange=... begins\nplain\n" + CAUSE_TEXT + "[1]<stderr>:goes on\n"
    out, err, verdict = said(logged, "x\r 1%\r 2%\n", code=0)
    assert (out, sorted(err), verdict.errors) == ("x\r 1%\r 2%\n", sorted(logged), [])
    other = HOROVODRUN.replace("RuntimeError: Horovod detected", "OSError: detected")
    assert said(other)[1] == other
    cut = "Traceback (most recent call last):\n  File"
    assert said(cut)[1] == cut
    # Streams stay separate and arrive in pieces.
    script = "import sys; sys.stdout.write('a\\r10%\\rb\\r\\nend'); sys.stderr.write('e\\n')"
    pieces: tuple[list[str], list[str]] = ([], [])
    code = processes.call([sys.executable, "-c", script], {}, pieces[0].append, pieces[1].append)
    assert (code, *pieces) == (0, ["a\r", "10%\r", "b\r\n", "end"], ["e\n"])


@pytest.mark.parametrize(
    ("piece", "left", "came"),
    [
        (f"[1]<stderr>:loading 50%{MARK}{CAME}\n", "[1]<stderr>:loading 50%\n", [1]),
        (f"Mon Nov 24 10:00:00 2025[1]<stderr>:{MARK}{CAME}\n", "", [1]),  # with a timestamp
        (f"[1,1]<stderr>:{MARK}{CAME}\n", "", [1]),  # under MPI
        (f"[1]<stdout>:{MARK}{CAME}\n", "", [1]),  # of a script whose errors go to its output
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


def test_reader_that_has_seen_enough_ends_nothing() -> None:
    code = (
        "from paceline.launch.failures.output import Output, writer\n"
        "ranks = Output(writer('stdout'), writer('stderr'))\n"
        "for _ in range(20000): ranks.out('[0]<stdout>:epoch\\n')\n"
        "ranks.err('still here\\n')\n"
    )
    done = subprocess.run(
        ["sh", "-c", '"$0" -c "$1" | head -n 1', sys.executable, code], capture_output=True, text=True, timeout=300
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


FOUR_HOSTS = dict(enumerate("abcd"))
INTERNAL = "horovod.common.exceptions.HorovodInternalError: rank 1 is gone"


def own(rank: int = 1) -> Fate:
    return Fate(rank, Failed("ValueError: on purpose", lines=["ValueError: on purpose"]), 1)


NOTICED = Fate(0, Failed(INTERNAL, follows="failure"), 1)
ASKED = Fate(2, status=143, asked=True)
LOST = Fate(3, status=1, how="is gone")
EXITED = Fate(2, status=7)
WAIT = [Fate(rank, Failed(INTERNAL, follows="end"), 1) for rank in (0, 2)]


@pytest.mark.parametrize(
    ("fates", "rank"),
    [
        ([own()], 1),
        ([NOTICED, own()], 1),
        ([NOTICED, Fate(1, NOTICED.failed, 1)], 0),
        ([ASKED, NOTICED], 0),
        ([ASKED], 2),
        ([NOTICED, LOST], 3),
        ([own(), LOST], 1),
        ([NOTICED, EXITED], 2),
        ([own(2), own(1)], 2),
        ([own(), *WAIT, Fate(3, status=0)], 1),
    ],
)
def test_the_first_that_is_nobody_elses_consequence(fates: list[Fate], rank: int) -> None:
    assert decide(fates, FOUR_HOSTS, 1).rank == rank


def test_an_error_of_the_users_is_no_cause_where_another_rank_has_one() -> None:
    users = Fate(0, Failed("ranks did not meet.", "train.py, line 9", remedy="Look there."), 1)
    assert decide([users, own()], FOUR_HOSTS, 1).rank == 1
    errors = decide([users, NOTICED], FOUR_HOSTS, 1).errors
    assert errors == [("Rank 0: train.py, line 9: ranks did not meet.", "Look there.")]


SHUT_DOWN = "Horovod has been shut down. This was caused by an exception on one of the ranks"


def after(cause: Exception, error: Exception) -> Exception:
    """Return an error raised while another one was handled."""
    try:
        try:
            raise cause
        except Exception:
            raise error  # noqa: B904
    except Exception as found:
        return found


@pytest.mark.parametrize(
    ("error", "follows"),
    [
        (ValueError("on purpose"), ""),
        (HorovodInternalError("Rank 2 died"), FAILURE),
        (HorovodInternalError(SHUT_DOWN), END),
        (RuntimeError(f"UnknownError: {SHUT_DOWN}"), END),  # TensorFlow's
        (communicator.StageFailed("Rank 1 could not go on", 1, "ValueError"), FAILURE),
        (communicator.StageLost("Rank 1 died"), FAILURE),
        (communicator.HorovodEnded("Horovod was shut down"), END),
        (ranks_lost("Rank 1 is gone.", "See its output."), FAILURE),
        (after(HorovodInternalError(SHUT_DOWN), KeyError("state")), END),
        (after(ValueError("bad batch"), KeyError("state")), ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
)
def test_what_an_error_follows_from(error: Exception, follows: str) -> None:
    assert consequences.of(error) == follows


def test_texts_that_follow_from_another_ranks_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "horovod.common.exceptions.HorovodInternalError"
    assert consequences.of_name(name, f"{name}: {SHUT_DOWN}") == END
    assert consequences.of_name("ValueError", "ValueError: on purpose") == ""
    # An error with a text that the library reported follows from it.
    monkeypatch.setattr(consequences, "_heard", lambda: iter(["Rank 2 died: process 1 on host a"]))
    assert consequences.of(RuntimeError("{{node x}} Rank 2 died: process 1 on host a ended [Op:Allreduce]")) == FAILURE
    assert consequences.of(ValueError("on purpose")) == ""


def raised(function: Callable[..., Any], *values: Any) -> Exception:
    try:
        function(*values)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def deep(level: int) -> None:
    if level:
        deep(level - 1)
    raise KeyError("line 1\nof two")


def test_of_a_traceback_at_most_20_lines_are_shown() -> None:
    found = excerpt.lines(raised(deep, 99))
    assert found[0].endswith("frames left out)")
    assert found[-1].startswith("KeyError: ") and "in deep" in found[-3]
    assert len(found) <= 20
    # Frames of libraries are left out.
    error = raised(json.loads, "{")
    found = excerpt.lines(error)
    assert [line.split()[-1] for line in found if line.startswith("  File")] == ["raised"]
    assert "  (3 frames left out)" in found
    assert found[-1] == excerpt.headline(error)
    assert excerpt.place(error.__traceback__).startswith(f"{__file__}, line ")
    # Long message is cut.
    text = "\n".join(map(str, range(99)))
    found = excerpt.lines(raised(lambda: (_ for _ in ()).throw(ValueError(text))))
    assert found[-5:] == ["ValueError: 0", "1", "2", "3", "4"]


def test_error_of_the_users_is_reported_with_its_remedy() -> None:
    from paceline.errors import UserError

    def fail() -> None:
        raise UserError("exchange='x' is not known.", "Use sync.")

    report = uncaught.report(raised(fail))
    assert (report.error, report.remedy, report.lines, report.follows) == (
        "exchange='x' is not known.", "Use sync.", [], "",
    )  # fmt: skip
    assert report.place.startswith(f"{__file__}, line ")


class _Pieces(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def write(self, text: str) -> int:
        self.pieces.append(text)
        return len(text)


def test_a_traceback_is_written_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """In separate pieces, lines of Horovod's threads would interrupt it."""
    pieces = _Pieces()
    monkeypatch.setattr(sys, "stderr", pieces)
    try:
        raise ValueError("layer 7 has no rows")
    except ValueError as error:
        uncaught._show(ValueError, error, error.__traceback__)
    (whole,) = pieces.pieces
    assert whole.startswith("Traceback (most recent call last):\n")
    assert whole.endswith("ValueError: layer 7 has no rows\n")
