"""Every help text and every table at 60, 80 and 120 columns: nothing is wider, no word is broken or cut off."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from rich.table import Table

from integration_tests.unit.record.test_trace import of_json, rank_json
from paceline import config
from paceline.launch import cli, console
from paceline.launch.record import command as record
from paceline.record import trace

WIDTHS = (60, 80, 120)


def every_command(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of all commands, those of groups before those in them."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*words, name)
        if isinstance(command, click.Group):
            yield from every_command(command, (*words, name))


@pytest.fixture(params=WIDTHS)
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, no_variables: None) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    return int(request.param)


@pytest.mark.parametrize("words", [(), *every_command(cli.main)], ids=" ".join)
def test_help_fits(words: tuple[str, ...], width: int) -> None:
    command: click.Command | None = cli.main
    context = click.Context(cli.main, info_name="paceline")
    for word in words:
        assert isinstance(command, click.Group)
        command = command.get_command(context, word)
        assert command is not None
        context = click.Context(command, info_name=word, parent=context)
    assert command is not None
    text = command.get_help(context)  # click's runner would have 80 columns
    assert text.startswith("Usage:")
    assert [line for line in text.splitlines() if len(line) > width] == []
    assert "\\b" not in text
    assert "\b" not in text


def lines_of(capsys: pytest.CaptureFixture[str], table: Any) -> list[str]:
    console.out().print(table)
    return capsys.readouterr().out.splitlines()


def whole(lines: list[str], words: list[str]) -> None:
    """Every one of `words` stands in one line, and nothing was cut off."""
    assert [word for word in words if not any(word in line for line in lines)] == []
    assert [line for line in lines if "…" in line] == []


def test_tables_fit_and_no_column_is_cut_where_others_have_room(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    merged = trace.merge([of_json(rank_json(rank, 3)) for rank in range(3)])
    lines = lines_of(capsys, record.summary_table(merged, "Trace of 3 ranks: trace.json"))
    assert max(map(len, lines)) <= width
    whole(lines, ["tensors", "steps", "waiting", "bytes/step", "messages/step", "rounds/step", "150.00", "20.0%"])
    lines = lines_of(capsys, record.slowest_table(merged))
    assert max(map(len, lines)) <= width
    whole(lines, ["allreduce.last.weight", "allreduce.first.weight", "bytes", "time", " ms"])
    # No column is cut where others have room.
    table = Table(title="A title", title_justify="left")
    table.add_column("allreduce", no_wrap=True)
    titles = ["call ms", "95 % interval", "message ms", "bus MB/s", "of wire", "of bound", "CPU ms", "sent MB/host"]
    for title in [*titles, "over gloo", "over ddp", "over 2 ranks"]:
        table.add_column(title, justify="right")
    table.add_row(
        "horovod", "16.36", "11.56 .. 21.16", "3.775", "0.001589", "", "", "0.948", "", "", "4.381 ~", "8.805"
    )
    lines = lines_of(capsys, table)
    whole(lines, ["interval", "message", "0.001589", "host", "11.56", "21.16", "8.805"])
    assert max(map(len, lines)) <= width


def test_tables_of_a_plan_fit(width: int, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    trace.write(trace.merge([of_json(rank_json(rank, 2)) for rank in range(2)]), path)
    words = ["plan", str(path), "--algorithm", "ring", "--alpha", "1e-4", "--beta", "1e-9", "--coordination-ms", "0.1"]
    result = CliRunner().invoke(cli.main, words)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    whole(lines, ["threshold", "mgwfbp", "optimal", "(best)", "exposed", "messages", "pipelined", "speed", "nothing"])
    # Sentences below a table are one line each, for terminals to fold.
    assert [line for line in lines if len(line) > width and line[:1] in "┃│┏└ "] == []


def test_options_fit(width: int) -> None:
    result = CliRunner().invoke(cli.main, ["doctor", "--options"])
    lines = result.output.splitlines()
    whole(lines, [option.variable for option in config.OPTIONS])
    whole(lines, [flag for option in config.OPTIONS for flag in option.flags])
    *table, _ = lines
    assert max(map(len, table)) <= width
    assert len(table) < 6 * len(config.OPTIONS) + 10


@pytest.mark.parametrize("words", [["doctor", "--options"], ["--help"], ["run", "--help"]], ids=" ".join)
def test_reader_that_has_seen_enough_is_no_failure(words: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "paceline.launch.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 0


def test_colours_are_left_out_where_nobody_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for variables, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        with monkeypatch.context() as context:
            for name, value in variables.items():
                context.setenv(name, value)
            stream = Terminal()
            context.setattr(sys, "stderr", stream)
            console.note("a note")
            assert ("\x1b[36m" in stream.getvalue()) == coloured
            assert "a note" in stream.getvalue()
