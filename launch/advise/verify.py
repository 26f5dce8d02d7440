"""Settings and stock Horovod in turn, A B C D A B C D ..., through short runs of the same script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from paceline.launch.advise.ranking import Row
from paceline.launch.advise.script import Outcome, Script
from paceline.launch.intervals import median_interval
from paceline.local.settings import Local
from paceline.record.pace import update_s

# Number of model averages that a run of the local exchange needs.
LEAST_AVERAGES = 9


def verify(script: Script, rows: Sequence[Row], steps: int, turns: int, note: Callable[[str], None]) -> dict[str, Row]:
    """Measure stock Horovod, the first of `rows`, and the others in turn; return the rows by name, measured.

    `note` gets a line before each run. A setting that fails is not run again.
    """
    found: dict[str, list[float]] = {one.name: [] for one in rows}
    failed: dict[str, str] = {}
    stock = rows[0].name
    for turn in range(turns):
        for one in rows:
            if one.name in failed:
                continue
            note(f"turn {turn + 1} of {turns}: {one.name}")
            outcome = _run(script, one.options, steps)
            step_s = _step_s(outcome, one.options)
            if step_s is None:
                failed[one.name] = _why(outcome)
            else:
                found[one.name].append(step_s)
        if stock in failed:
            break
    return {one.name: _measured(one, found[one.name], found[stock], failed.get(one.name, "")) for one in rows}


def _updates_between(options: Mapping[str, str]) -> int:
    return Local().sync_every if options.get("exchange") == "local" else 1


def _run(script: Script, options: Mapping[str, str], steps: int) -> Outcome:
    between = _updates_between(options)
    return script.measure(options, steps if between == 1 else max(LEAST_AVERAGES, -(-steps // between)))


def _step_s(outcome: Outcome, options: Mapping[str, str]) -> float | None:
    if outcome.code or outcome.recorded is None:
        return None
    return update_s(outcome.recorded, _updates_between(options))


def _why(outcome: Outcome) -> str:
    if outcome.verdict.errors:
        return outcome.verdict.errors[0][0]
    return f"exit code {outcome.code}" if outcome.code else "too few steps were recorded"


def _measured(row: Row, own_s: Sequence[float], stock_s: Sequence[float], failed: str) -> Row:
    if failed or not own_s or not stock_s:
        return replace(row, failed=failed)
    ratios = [own / stock for own, stock in zip(own_s, stock_s, strict=False)]
    return replace(row, measured=median_interval(ratios), measured_s=median(own_s))
