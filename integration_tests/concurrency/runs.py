"""Runs cases, and sums up their results."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.table import Table

from integration_tests.concurrency.cases import Case
from integration_tests.concurrency.table import OF_SETS, Refusal, refusal
from integration_tests.support.ranks import RankFailed, run_ranks

# Only a hang takes longer, even with five ranks on two cores.
LIMIT_S = 60.0


@dataclass
class Line:
    """Result of a case: the report of all ranks if it failed, and facts about it otherwise."""

    case: Case
    problem: str
    fact: str
    took_s: float

    def __str__(self) -> str:
        return f"{'FAILED' if self.problem else 'ok    '} ({self.took_s:4.1f} s)  {self.case}; {self.fact}"


def run_case(case: Case) -> Line:
    """Run one case; ranks are used again by cases with the same environment, unless the case is refused."""
    body: Callable[..., str]
    if case.framework == "torch":
        from integration_tests.concurrency.torch_ranks import run as body
    else:
        from integration_tests.concurrency.keras_ranks import run as body
    expected, begin_s = refusal(case), time.monotonic()
    problem, facts = "", [""]
    env = case.env(case.activity in OF_SETS)
    refused = expected is not None
    try:
        facts = run_ranks(body, case.size, case, refused, env=env, timeout_s=LIMIT_S, fresh=refused)
    except RankFailed as failed:
        problem = str(failed)
    if expected is not None and not problem:
        problem = _wrong_refusal(expected, facts)
    return Line(case, problem, facts[0].partition("\n")[0][:160], time.monotonic() - begin_s)


def _wrong_refusal(expected: Refusal, errors: Sequence[str]) -> str:
    """Return the errors of all ranks, unless one says why and each of the others does so or names a rank."""
    say_why = [re.search(expected.pattern, one, re.DOTALL | re.IGNORECASE) is not None for one in errors]
    clear = [why or re.search(r"rank \d", one, re.IGNORECASE) is not None for why, one in zip(say_why, errors)]
    return "" if any(say_why) and all(clear) else "the refusal does not say why:\n" + "\n".join(errors)


def run_all(cases: Iterable[Case], show: Callable[[Line], None], minutes: float) -> list[Line]:
    """Run cases one after the other. `minutes`: the last case begins before that."""
    lines, end_s = [], time.monotonic() + 60 * minutes
    for case in cases:
        if time.monotonic() > end_s:
            break
        lines.append(run_case(case))
        show(lines[-1])
    return lines


def table(lines: Sequence[Line]) -> Table:
    """Summary: activities by exchanges; each cell has the number of cases, and of those that failed."""
    exchanges = list(dict.fromkeys(line.case.exchange for line in lines))
    made = Table("activity", *exchanges, "all")
    for activity in dict.fromkeys(line.case.activity for line in lines):
        own = [line for line in lines if line.case.activity == activity]
        cells = [_cell([line for line in own if line.case.exchange == one]) for one in exchanges]
        made.add_row(activity, *cells, _cell(own))
    made.add_section()
    cells = [_cell([line for line in lines if line.case.exchange == one]) for one in exchanges]
    made.add_row("all", *cells, _cell(lines))
    return made


def _cell(lines: Sequence[Line]) -> str:
    failed = sum(bool(line.problem) for line in lines)
    return f"{len(lines)}, {failed} FAILED" if failed else str(len(lines) or "")
