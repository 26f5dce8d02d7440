"""Programs of other projects: turns, tables and columns.

A turn is a whole run of the program on each system, one after another. A program may print figures of several inputs,
which become a table each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import msgspec

from paceline.errors import UserError
from paceline.examples.benchmarks.harness.ratio import each_over
from paceline.examples.benchmarks.harness.report import Benchmark, Column, Measured
from paceline.examples.benchmarks.harness.system import check_known
from paceline.examples.benchmarks.harness.turn import Turn
from paceline.examples.benchmarks.harness.turns import Comparison, Limits, Log, compare
from paceline.examples.benchmarks.outside.jobs import open_jobs
from paceline.examples.benchmarks.outside.program import Program, Rows, Run
from paceline.examples.benchmarks.outside.programs import find
from paceline.examples.benchmarks.outside.settings import Settings
from paceline.examples.benchmarks.steps.benchmark import where

FIGURE = "time_ms"
RUN_LIMIT_S = 400.0


def checked(settings: Settings) -> tuple[Program, Settings]:
    """Return the program, and the settings with its systems and inputs where none are given.

    Raises UserError for unusable settings.
    """
    program = find(settings.program)
    settings.check()
    systems, inputs = settings.systems or tuple(program.systems), settings.inputs or program.inputs
    check_known(systems, program.systems)
    return program, msgspec.structs.replace(settings, systems=systems, inputs=inputs)


def missing(settings: Settings) -> UserError | None:
    """Return the reason why the program cannot be had here, with the way to get it; None if it can."""
    try:
        find(settings.program).obtain(settings.folder)
    except UserError as error:
        return error
    return None


def measure(settings: Settings, limits: Limits, log: Log) -> Iterator[Measured]:
    """Run the program on all systems, for one input after another or for all of them at once."""
    program, settings = checked(settings)
    place = program.obtain(settings.folder)
    groups = [settings.inputs] if program.at_once else [(one,) for one in settings.inputs]
    once = replace(limits, turns=min(limits.turns, settings.repeats))
    with open_jobs(settings.hosts, settings.size, settings.rate, settings.latency) as jobs:
        for group in groups:
            these = msgspec.structs.replace(settings, inputs=group)
            rows: dict[str, list[Rows]] = {name: [] for name in settings.systems}

            def take(
                system: str, these: Settings = these, rows: dict[str, list[Rows]] = rows, group: Sequence[str] = group
            ) -> Turn:
                run = Run(place, system, group[0], these)
                found = program.read(run, jobs.run(program.command(run), program.systems[system], RUN_LIMIT_S))
                rows[system].append(found)
                return Turn({FIGURE: sum(figures[FIGURE] for figures in found.values())})

            takes = {name: partial(take, name) for name in settings.systems}
            ratios = each_over(settings.systems, program.references, FIGURE)
            total = compare(takes, FIGURE, ratios, once, log, program.title)
            yield from tables(program, these, total, rows)


def tables(
    program: Program, settings: Settings, total: Comparison, rows: Mapping[str, Sequence[Rows]]
) -> Iterator[Measured]:
    """Yield a table for each title that the runs have given."""
    first = next(iter(rows.values()))[0]
    rate = settings.rate if settings.hosts > 1 else None
    setting = where(settings.size, settings.hosts, rate, settings.latency)
    for title in first:
        turns = {name: [Turn(found[title]) for found in taken] for name, taken in rows.items()}
        comparison = replace(total, turns=turns)
        facts = {
            "program": settings.program, "hosts": settings.hosts, "ranks": settings.size, "rate": rate,
            "latency": settings.latency, "steps": settings.steps,
        }  # fmt: skip
        yield Measured(f"{program.title}, {title}: {setting}", comparison, facts)


BENCHMARK = Benchmark(
    "Programs of other projects",
    Settings,
    measure,
    "system",
    (
        Column("time ms", FIGURE, ".4g"),
        Column("images/s per rank", "images_per_s", ".2f"),
    ),
    start_s=10.0,
    quick={"repeats": 1, "steps": 2, "warm_up": 1},
    missing=missing,
)
