"""The rows of `python -m examples.benchmarks all`: each is a command line that the real commands take."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click
import pytest

from paceline.errors import UserError
from paceline.examples.benchmarks.commands import collectives as bench_collectives
from paceline.examples.benchmarks.commands import command as bench
from paceline.examples.benchmarks.commands import partial as bench_partial
from paceline.examples.benchmarks.commands import pipeline as bench_pipeline
from paceline.examples.benchmarks.commands import scale as bench_scale
from paceline.examples.benchmarks.every.rows import GROUPS, QUICK, ROWS, START_S, Row, chosen
from paceline.examples.benchmarks.networks import models

MOST_SYSTEMS = 4
LONGEST_S = 2 * 3600
rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def parsed(row: Row, quick: bool = False, limit_s: float | None = None) -> dict[str, Any]:
    """The parameters that the command itself reads from the row's words."""
    name, *words = row.arguments(quick, limit_s)
    command = bench.bench_command.get_command(click.Context(bench.bench_command), name)
    assert command is not None
    with command.make_context(name, [*words, "--json"]) as context:
        return context.params


def systems_of(row: Row, given: dict[str, Any]) -> tuple[int, int]:
    """How many systems take turns, and how many results there will be."""
    if row.benchmark == "collectives":
        options = {name: value for name, value in given.items() if name != "as_json"}
        asked = bench_collectives.requested(**options)
        sizes = len(asked.worlds) * (len(asked.operations) * len(asked.sizes_bytes) + bool(asked.model_mb))
        return len(asked.systems), sizes
    if row.benchmark == "pipeline":
        options = {name: value for name, value in given.items() if name != "as_json"}
        cases = bench_pipeline.requested(**options)
        return len(cases.systems), len(cases.cases)
    if row.benchmark == "partial":
        asked_for = {name: value for name, value in given.items() if name != "as_json"}
        bench_partial.PartialRequest(**asked_for).check()
        return 0, len(given["cases"]) if given["parts"] == ("training",) else len(given["sizes_bytes"])
    if row.benchmark == "scale":
        options = {name: value for name, value in given.items() if name != "as_json"}
        scale = bench_scale.requested(**options)
        return len(scale.systems), len(scale.ranks) + 1  # what follows from all
    if row.benchmark == "codecs":
        return 0, len(given["models"].split(","))
    for model in given["models"]:
        models.find(model)
    assert given["hosts"] == 1 or given["ranks"] is None
    if row.benchmark == "fusion":
        return 3 + len(given["policies"]), len(given["models"])
    return len(given["systems"].split(",")) if row.benchmark == "pipelined" else 3, len(given["models"])


@rows
def test_the_real_command_takes_every_row(row: Row) -> None:
    given = parsed(row)
    systems, results = systems_of(row, given)
    assert systems <= MOST_SYSTEMS and results == row.results
    assert given["as_json"] and given["time_limit_s"] == row.limit_s
    hosts = str(given.get("hosts") or 1)
    assert row.needs_root == (hosts != "1")


@rows
def test_a_quick_row_is_shorter_and_a_limit_takes_the_place_of_its_own(row: Row) -> None:
    usual, quick = parsed(row), parsed(row, quick=True)
    assert quick["time_limit_s"] <= usual["time_limit_s"]
    shorter = [name for name in ("turns", "iterations", "seeds") if name in usual and quick[name] < usual[name]]
    assert shorter, "nothing of it is shorter"
    assert row.expected_s(True, None) < row.expected_s(False, None)
    assert parsed(row, limit_s=7.5)["time_limit_s"] == parsed(row, True, 7.5)["time_limit_s"] == 7.5


def test_all_rows_together_take_less_than_two_hours() -> None:
    assert sum(row.expected_s(False, None) for row in ROWS) < LONGEST_S


def test_names_are_files_and_stand_for_one_thing() -> None:
    names = Counter(row.name for row in ROWS)
    assert set(names.values()) == {1} and "run" not in names
    assert all("/" not in name and "," not in name and " " not in name for name in names)
    assert set(GROUPS) == set(QUICK) == set(START_S) == {row.benchmark for row in ROWS}
    for row in ROWS:
        assert row.name not in GROUPS or [row] == chosen([row.name])


def test_rows_are_chosen_by_their_names_and_benchmarks_and_keep_their_order() -> None:
    assert chosen([]) == list(ROWS)
    assert [row.name for row in chosen(["stages", "resnet20", "codecs"])] == [
        "resnet20", "codecs-digits", "codecs-uneven", "stages",
    ]  # fmt: skip
    with pytest.raises(UserError) as caught:
        chosen(["resnet20", "resnet21"])
    assert "--only resnet21" in caught.value.problem and "Did you mean resnet20" in caught.value.remedy
