"""Faults of the generated matrix: `make test` runs a dozen, `make test-more` about ninety, `make soak` all of them."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from integration_tests.faults.matrix.__main__ import everything, run_case
from integration_tests.faults.matrix.cases import Case
from integration_tests.faults.matrix.jobs import Outcome
from integration_tests.faults.matrix.ranks import Report
from integration_tests.faults.matrix.sentences import Action, Fault, Moment, parse
from integration_tests.faults.matrix.table import cases, combinations
from integration_tests.faults.matrix.verdict import judge
from integration_tests.support.selection import spread

MOST_RANKS = 5  # in `make test-more`
MORE = 90
ALL = cases()
# Exchange, framework and backend, number of ranks, and the sentence.
CHOSEN = [
    ("sync", "torch", "", 3, "at step 4 kill rank 1 in a message"),
    ("sync", "torch", "", 4, "at step 5 stop rank 0 while the others wait for it"),
    ("armed", "torch", "", 3, "at step 4 kill rank 2 in an armed step"),
    ("pipelined", "torch", "", 3, "at step 4 stop rank 1 for a second while the plan changes"),
    ("partial", "torch", "", 3, "at step 3 kill rank 0 in a partial round"),
    ("partial", "torch", "", 3, "at step 5 raise an exception on rank 1 between two gradients"),
    ("local", "torch", "", 3, "at step 3 kill rank 1 in a message"),
    ("split", "torch", "", 3, "at step 4 use up the memory of rank 2 in a message"),
    ("stages", "torch", "", 3, "at step 4 interrupt rank 1 between two gradients"),
    ("sync", "torch", "", 3, "at step 4 fill the disk of rank 0 while a checkpoint is written"),
    ("armed", "torch", "", 3, "at step 4 change a shape on rank 1 in an armed step"),
    ("pipelined", "keras", "tensorflow", 3, "at step 4 kill rank 1 in drain()"),
]


def _assert_right(case: Case) -> None:
    line = run_case(case)
    print(line)
    assert not line.problems, f"{line}\n{line.details}"


@pytest.mark.parametrize(
    "case",
    [Case(parse(text), exchange, framework, backend, size) for exchange, framework, backend, size, text in CHOSEN],
    ids=str,
)
def test_faults(case: Case) -> None:
    if case.fault.action is Action.DISK and Action.DISK not in {action for action, *_ in combinations()}:
        pytest.skip("this process cannot mount a file system")
    _assert_right(case)


_SOME = [case for case in ALL if case.size <= MOST_RANKS and case.fault.moment is not Moment.INIT]


@pytest.mark.more
@pytest.mark.parametrize("turn", range(10))
def test_who_waits_beside_a_killed_rank_does_not_abort(turn: int) -> None:
    """In one of five turns a rank began an operation while another thread closed its connections, and aborted."""
    _assert_right(Case(Fault(5, Action.KILL, 1, Moment.MESSAGE), "local", "torch", "", 4))


@pytest.mark.more
@pytest.mark.parametrize("case", spread(_SOME, MORE), ids=str)
def test_faults_spread_over_the_matrix(case: Case) -> None:
    _assert_right(case)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_all_faults() -> None:
    failed = [line for line in map(run_case, everything(seed=1)) if line.problems]
    assert not failed, "\n".join(map(str, failed))


# --- the matrix itself: a verdict that accepts everything would accept any fault.


def test_every_sentence_is_read_as_it_is_written() -> None:
    assert len(ALL) >= 300
    assert [parse(str(case.fault)) for case in ALL] == [case.fault for case in ALL]
    with pytest.raises(ValueError, match="describes no fault"):
        parse("at step 7 annoy rank 1")


def test_every_axis_has_cases() -> None:
    assert {case.fault.moment for case in ALL} == set(Moment) - {Moment.RESET}
    assert {case.fault.action for case in ALL} >= set(Action) - {Action.CUT, Action.SLOW, Action.DISK}
    assert {case.size for case in ALL} == {3, 4, 5, 8}


_KILL = Case(Fault(4, Action.KILL, 1, Moment.ENQUEUE), "sync", "torch", "", 3)
_NAMED = "Gradient of 'fault.0': Rank 1 died: process 7 on host vm ended"


def _killed(**changes: Any) -> Outcome:
    survivors = {rank: Report(rank, "HorovodInternalError", _NAMED, 10.1) for rank in (0, 2)}
    return dataclasses.replace(Outcome({"time_s": 10.0}, survivors, checkpoint=3), **changes)


def test_a_victim_behind_a_cut_link_may_be_ended_by_its_launcher_but_not_hang() -> None:
    case = dataclasses.replace(_KILL, fault=Fault(4, Action.CUT, 1, Moment.NEGOTIATION))
    named = {rank: Report(rank, "StageLost", "Rank 1 (process 7 on host b) does not answer", 18.0) for rank in (0, 2)}
    assert judge(case, _killed(reports=named, ended=[1])).problems == []
    assert judge(case, _killed(reports=named)).problems == ["rank 1 left no report"]
    assert judge(case, _killed(reports=named, hung=[1])).problems == ["rank 1 hung"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"mark": None}, "the fault did not happen"),
        ({"hung": [2], "reports": {0: Report(0, "HorovodInternalError", _NAMED, 10.1)}}, "rank 2 hung"),
        ({"left": ["7: sh"]}, "process left behind"),
        ({"violations": ["sums: rank 0"]}, "history: sums"),
        ({"checkpoint": -1}, "no checkpoint can be loaded"),
        ({"checkpoint_off": 0.1}, "the checkpoint of step 3 is off"),
        ({"reports": {0: Report(0, "HorovodInternalError", _NAMED, 10.1)}}, "rank 2 left no report"),
        ({"reports": {rank: Report(rank, steps=9, off=0.0) for rank in (0, 2)}}, "rank 0 had no error"),
        ({"reports": {rank: Report(rank, "E", "Rank 2 died", 10.1) for rank in (0, 2)}}, r"an error that names \[2\]"),
        ({"reports": {rank: Report(rank, "E", "shut down", 10.1) for rank in (0, 2)}}, "an error that names no rank"),
        ({"reports": {rank: Report(rank, "E", _NAMED, 15.0) for rank in (0, 2)}}, "had its error after 5.0 s"),
    ],
)
def test_the_verdict_finds(changes: dict[str, object], problem: str) -> None:
    assert judge(_KILL, _killed()).problems == []
    assert any(re.search(problem, one) for one in judge(_KILL, _killed(**changes)).problems)
