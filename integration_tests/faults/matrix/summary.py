"""Lines of a run of the matrix, and its summary by action."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from integration_tests.faults.matrix.cases import Case
from integration_tests.faults.matrix.sentences import Action, parse


@dataclass
class Line:
    """Result of one case.

    Attributes:
        problems: that are not known.
        known: the reason of known problems; empty if there are none.
        worst_s: longest time from the fault to an error of a survivor; None if there was no error.
        happened: the fault happened.
        left, hung, violations: numbers of processes, ranks, and findings in the history.
        took_s: of the whole case.
        details: output of the ranks, if there are problems.
    """

    case: Case
    problems: Sequence[str]
    known: str
    worst_s: float | None
    happened: bool
    left: int
    hung: int
    violations: int
    took_s: float
    details: str = ""

    @property
    def row(self) -> dict[str, Any]:
        """The result as one line of a file, for `merged` and the page of faults."""
        own = {name: value for name, value in vars(self).items() if name != "case"}
        names = {name: getattr(self.case, name) for name in ("exchange", "framework", "backend", "size")}
        return {**names, "sentence": str(self.case.fault), **own}

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Line:
        """Read a line of a file."""
        values = dict(row)
        names = {name: values.pop(name) for name in ("exchange", "framework", "backend", "size")}
        return cls(Case(parse(values.pop("sentence")), **names), **values)

    def __str__(self) -> str:
        verdict = "FAILED" if self.problems else "known " if self.known else "ok    "
        after = "no error" if self.worst_s is None else f"{self.worst_s:.3f} s"
        problems = "".join(f"\n    {one}" for one in self.problems)
        return f"{verdict} {after:>9} ({self.took_s:4.1f} s)  {self.case}{problems}"


def written(lines: Sequence[Line], path: Path) -> None:
    """Append results to a file, a line of JSON for each."""
    with path.open("a") as file:
        file.writelines(json.dumps(line.row) + "\n" for line in lines)


def merged(paths: Sequence[Path]) -> list[Line]:
    """Results of several runs."""
    return [Line.of_row(json.loads(line)) for path in paths for line in path.read_text().splitlines()]


def table(lines: Sequence[Line]) -> Table:
    """Summary by action, and of all."""
    columns = (
        "action",
        "cases",
        "happened",
        "failed",
        "known",
        "hung",
        "left behind",
        "violations",
        "worst time to error",
    )
    made = Table(*columns)
    for action in Action:
        chosen = [line for line in lines if line.case.fault.action is action]
        if chosen:
            made.add_row(action.value.format("R"), *_numbers(chosen))
    made.add_section()
    made.add_row("all", *_numbers(lines))
    return made


def _numbers(lines: Sequence[Line]) -> list[str]:
    times = [line.worst_s for line in lines if line.worst_s is not None]
    return [
        str(len(lines)),
        str(sum(line.happened for line in lines)),
        str(sum(bool(line.problems) for line in lines)),
        str(sum(bool(line.known) and not line.problems for line in lines)),
        str(sum(line.hung for line in lines)),
        str(sum(line.left for line in lines)),
        str(sum(line.violations for line in lines)),
        f"{max(times):.3f} s" if times else "-",
    ]
