"""The matrix of faults: every fault at every moment of every exchange, counted and judged.

    python -m integration_tests.faults.matrix --cases 20
    python -m integration_tests.faults.matrix --only armed --action kill --ranks 4
    python -m integration_tests.faults.matrix --merge FILE ...      (sums up what runs with --output FILE have written)
    python -m integration_tests.faults.matrix --sentence "at step 7 kill rank 1 in a message" --only sync

Exits with 1 if a case has a problem: a rank that hung or had no error, an error that names no rank or another one or
comes too late, wrong weights, a damaged checkpoint, a violation in the history, a process left behind, or a fault that
did not happen.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from integration_tests.faults.matrix import elastic, jobs, links
from integration_tests.faults.matrix.cases import Case
from integration_tests.faults.matrix.effects import page_table
from integration_tests.faults.matrix.known import passes_unexpectedly, unknown
from integration_tests.faults.matrix.sentences import Action, Moment, parse
from integration_tests.faults.matrix.summary import Line, merged, table, written
from integration_tests.faults.matrix.table import EXCHANGES, cases
from integration_tests.faults.matrix.verdict import TOO_LATE, judge
from integration_tests.support import selection
from integration_tests.support.ranks import end_all

_OUTPUT_CHARACTERS = 6000
TRIES = 3  # on a busy machine a message may have ended when the fault comes


def run_case(case: Case) -> Line:
    """Run and judge one case."""
    begin_s = time.monotonic()
    if case.fault.moment is Moment.RESET:
        found, verdict = elastic.run(case)
    else:
        run = links.run if case.fault.action in (Action.CUT, Action.SLOW) else jobs.run
        for _ in range(TRIES):
            found = run(case)
            verdict = judge(case, found)
            if not (len(verdict.problems) == 1 and verdict.problems[0].startswith(TOO_LATE)):
                break
    left, known = unknown(case, verdict.problems)
    if passes_unexpectedly(case, verdict.problems):
        left = ["the case is in known.py, and passes: remove its line there"]
    details = f"{found.stacks[-_OUTPUT_CHARACTERS:]}\n{found.output[-_OUTPUT_CHARACTERS:]}" if left else ""
    return Line(
        case, left, known, verdict.worst_s, found.mark is not None, len(found.left), len(found.hung),
        len(found.violations), time.monotonic() - begin_s, details,
    )  # fmt: skip


def everything(seed: int) -> list[Case]:
    """The matrix, and the cases of elastic jobs and of emulated hosts."""
    return [*cases(seed), *elastic.cases(), *(links.cases() if os.getuid() == 0 else ())]


def chosen(arguments: argparse.Namespace) -> list[Case]:
    """Cases that the arguments select."""
    found = [
        case
        for case in everything(arguments.seed)
        if arguments.only in ("", case.exchange)
        and arguments.framework in ("", case.framework)
        and (not arguments.action or case.fault.action.name.lower() in arguments.action)
        and arguments.moment in ("", case.fault.moment.name.lower())
    ]
    if arguments.sentence:
        fault = parse(arguments.sentence)
        framework, exchange = arguments.framework or "torch", arguments.only or "sync"
        backend = "tensorflow" if framework == "keras" else ""
        found = [Case(fault, exchange, framework, backend, arguments.ranks or max(3, fault.victim + 1))]
    elif arguments.ranks:
        found = [
            replace(case, size=arguments.ranks, fault=replace(case.fault, victim=case.fault.victim % arguments.ranks))
            for case in found
        ]
    if arguments.world > 1:
        found = [
            replace(case, worlds_before=arguments.world - 1)
            for case in found
            if case.fault.moment is not Moment.RESET and case.fault.action not in (Action.CUT, Action.SLOW)
        ]
    return selection.selected(found, arguments)


def run_all(found: Iterable[Case], console: Console, verbose: bool, minutes: float, output: Path | None) -> list[Line]:
    """Run cases one after the other, with a line for each. `minutes`: the last case begins before that."""
    lines = []
    end_s = time.monotonic() + 60 * minutes
    for case in found:
        if time.monotonic() > end_s:
            break
        line = run_case(case)
        lines.append(line)
        if output is not None:
            written([line], output)
        console.print(str(line), markup=False, highlight=False, soft_wrap=True)
        if line.details and verbose:
            console.print(line.details, markup=False, highlight=False, soft_wrap=True)
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--only", default="", choices=["", *EXCHANGES["torch"]], metavar="EXCHANGE")
    parser.add_argument("--action", nargs="+", default=[], choices=[one.name.lower() for one in Action])
    parser.add_argument("--moment", default="", choices=["", *(one.name.lower() for one in Moment)])
    parser.add_argument("--framework", default="", choices=["", *EXCHANGES])
    parser.add_argument("--ranks", type=int, default=0, help="in all cases; otherwise 3, 4, 5 and 8 in turn")
    parser.add_argument("--world", type=int, default=1, help="the fault is in this world of the processes (1)")
    selection.add_arguments(parser)
    parser.add_argument("--sentence", default="", help="this fault only")
    parser.add_argument("--brief", action="store_true", help="without the output of ranks")
    parser.add_argument("--output", type=Path, help="append results to this file, a line of JSON for each")
    parser.add_argument("--merge", type=Path, nargs="+", default=[], help="run nothing; sum up these files")
    parser.add_argument("--page", action="store_true", help="with --merge: print the table of docs/reliability.md")
    arguments, console = parser.parse_args(), Console(width=160)
    if arguments.merge:
        lines = merged(arguments.merge)
        if arguments.page:
            sys.stdout.write(page_table(lines))
        else:
            console.print(table(lines))
        return 1 if any(line.problems for line in lines) else 0
    try:
        lines = run_all(chosen(arguments), console, not arguments.brief, arguments.minutes, arguments.output)
    finally:
        end_all()
    console.print(table(lines))
    return 1 if any(line.problems for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
