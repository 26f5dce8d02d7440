"""The command: refusals, in two lines with exit code 2; texts and tables fit into 60, 80 and 120 columns."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from rich.table import Table

import paceline
from integration_tests.unit.record.test_trace import of_json, rank_json
from paceline import config
from paceline.horovod.shims import built_with
from paceline.launch import cli, console, mistakes
from paceline.launch.record import command as record
from paceline.record import trace

pytestmark = pytest.mark.usefixtures("no_variables")


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli.main, words)


def start(*words: str, python: tuple[str, ...] = (), **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *python, "-m", "paceline.launch.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **variables})


def refused(result: Result, *phrases: str) -> None:
    """Two lines on standard error, the problem and the remedy, with exit code 2."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 2, result.stderr
    assert lines[0].startswith("Error: ")
    for phrase in phrases:
        assert phrase in result.stderr


def test_help_lists_every_command_and_five_lead_a_new_user() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    assert [name for name in cli.COMMANDS if name not in result.output] == []
    assert len(cli.COMMANDS) <= 10
    result = invoke()
    assert result.exit_code == 0
    assert len(cli.FIRST_COMMANDS) == 5
    for command, _ in cli.FIRST_COMMANDS:
        assert command in result.output
        assert command.split()[0] == "paceline" and command.split()[1] in cli.COMMANDS
    assert all(len(line) <= 120 for line in result.output.splitlines())
    assert paceline.__version__ in invoke("--version").output
    record = invoke("record", "--help").output
    assert "--fusion POLICY" in record and "--record PATH" not in record, "it refuses the latter"


def test_help_imports_neither_horovod_nor_a_framework_nor_rich() -> None:
    done = start("--help", python=("-X", "importtime"))
    assert done.returncode == 0
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "click" in loaded
    assert loaded.isdisjoint({"horovod", "torch", "tensorflow", "keras", "rich", "matplotlib", "numpy"})


def test_command_whose_module_is_absent_does_not_break_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.COMMANDS, "absent", ("paceline.launch.absent:command", "Not there."))
    assert invoke("doctor", "--options").exit_code == 0
    assert "absent" not in invoke("--help").output
    refused(invoke("absent"), "no command absent")


def test_wrong_value_is_refused_in_a_real_process_without_a_traceback() -> None:
    done = start("doctor", "--options", PACELINE_DRAIN_LIMIT_S="a few")
    assert done.returncode == 2
    assert done.stdout == ""
    problem, remedy = done.stderr.splitlines()
    assert "PACELINE_DRAIN_LIMIT_S='a few'" in problem
    assert "whole number" in problem
    assert "PACELINE_DRAIN_LIMIT_S" in remedy


def test_options_lists_all_with_value_and_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_DRAIN_LIMIT_S", "77")
    monkeypatch.setenv("PACELINE_CACHE_DIR", "/a/long/path" * 9)  # longer than a line: it must not fold the names
    result = invoke("doctor", "--options")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    for option in config.OPTIONS:
        (first,) = (number for number, line in enumerate(lines) if f" {option.variable} " in line)
        row = "".join(lines[first : first + 4]) if option.name == "cache_dir" else lines[first]
        assert ("(variable)" if option.name in ("drain_limit_s", "cache_dir") else "(default)") in row
        for number, flag in enumerate(option.flags, first + 1):
            assert f" {flag} " in lines[number]
    assert "77 s" in result.output


def test_horovod_clean_empties_the_cache(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "wheels" / "key").mkdir(parents=True)
    assert invoke("horovod", "clean", "--cache-dir", str(cache)).exit_code == 0
    assert list(cache.iterdir()) == []
    assert "empty already" in invoke("horovod", "clean", "--cache-dir", str(cache)).stderr


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find = util.find_spec

    def without(*names: str) -> None:
        monkeypatch.setattr(util, "find_spec", lambda name, *rest: None if name in names else find(name, *rest))

    without("sklearn")
    refused(invoke("demo"), "scikit-learn", "Run `pip install 'scikit-learn<")
    without("torch", "keras", "tensorflow")
    result = invoke("demo")
    assert result.exit_code == 2
    assert "PyTorch is left out: torch is not installed." in result.stderr
    assert "Keras is left out: keras, tensorflow is not installed." in result.stderr
    assert "No framework is installed" in result.stderr
    without("horovod")
    refused(invoke("run", "-np", "2", "true"), "Horovod is not installed", "paceline horovod install")


# Command line, variables, words of the problem and of the remedy. {tmp}: the test's folder, with train.py, text.txt and
# a.trace.json, which is no trace.
# fmt: off
MISTAKES: list[tuple[str, dict[str, str], str, str]] = [
    # Numbers of ranks and hosts.
    ("run -np 0 true", {}, "-np 0 starts no rank", "-np 2"),
    ("run --num-proc=0 true", {}, "-np 0 starts no rank", "-np 2"),
    ("run -np two true", {}, "invalid int value: 'two'", "horovodrun --help"),
    ("run true", {}, "are required: -np", "horovodrun --help"),
    ("run -np 2", {}, "no command", "train.py"),
    ("run", {}, "no command", "train.py"),
    ("run -np 3 -H localhost:2 true", {}, "more ranks than -H localhost:2 has slots, 2", "add slots"),
    ("run -np 2 -H localhost true", {}, "more ranks than -H localhost has slots, 1", "add slots"),
    ("run -np 2 -H me@a:2 true", {}, "takes no user with a host, found 'me@a'", "`User me` below it"),
    ("run -np 2 -H [::1]:2 true", {}, "names and IPv4 addresses, found '[::1]:2'", "/etc/hosts"),
    ("run -np 2 -H localhost:two true", {}, "'localhost:two' is not a host", "node1:2"),
    ("run -np 2 -H localhost:1,,b:1 true", {}, "'' is not a host", "node1:2"),
    ("run -np 2 --hostfile absent true", {}, "host file absent cannot be read", "slots="),
    ("run -np 2 --network-interfaces eth9 true", {}, "--network-interfaces eth9: no such interface", "It has "),
    ("run -np 2 --cycle-time-ms fast true", {}, "invalid float value: 'fast'", "horovodrun --help"),
    ("run -np 2 --gloo --mpi true", {}, "not allowed with argument", "horovodrun --help"),
    ("record -np 0 true", {}, "-np 0 starts no rank", "-np 2"),
    # Commands.
    ("run -np 2 python trian.py", {}, "script trian.py does not exist", "Did you mean train.py?"),
    ("run -np 2 python absent/train.py", {}, "absent/train.py does not exist", "Looked in {tmp}/absent"),
    ("run -np 2 python -u -W ignore trian.py --x", {}, "script trian.py does not exist", "train.py?"),
    ("run -np 2 absent-program", {}, "no program absent-program", "python train.py"),
    ("run -np 2 ./train.py", {}, "./train.py cannot be executed", "python ./train.py"),
    # Flags.
    ("run --fusoin optimal -np 2 true", {}, "no", "Did you mean --fusion?"),
    ("run --exchange pipelinde -np 2 true", {}, "--exchange='pipelinde'", "PACELINE_EXCHANGE"),
    ("run --exchange= -np 2 true", {}, "--exchange=''", "PACELINE_EXCHANGE"),
    ("run --pipelined-k 0 -np 2 true", {}, "must be at least 1", "PACELINE_PIPELINED_K"),
    ("run --pipelined-correction 1 -np 2 true", {}, "below 1", "PACELINE_PIPELINED_CORRECTION"),
    ("run --debug record_steps=-5 -np 2 true", {}, "record_steps='-5' must be at least 1", "PACELINE_DEBUG"),
    ("run --record-steps 5 -np 2 true", {}, "option --record-steps", "Use --debug record_steps=VALUE."),
    ("run --no-check-horovod -np 2 true", {}, "--no-check-horovod", "Use --debug check_horovod=no."),
    ("rank --local-every 5 -- true", {}, "no option --local-every", "Use --sync-every."),
    ("run --local-outer-lr 5 -np 2 true", {}, "--local-outer-lr", "exchange=hvd.Local(outer_lr=...)"),
    ("run --collective gloo -np 2 true", {}, "--collective='gloo'", "Use horovod."),
    ("run --fusion file:absent.json -np 2 true", {}, "absent.json cannot be read", "--output"),
    ("run --fusion file:text.txt -np 2 true", {}, "text.txt", "--output"),
    ("run --fusion os:nothing -np 2 true", {}, "os has no 'nothing'", "module:function"),
    ("rnu -np 2 true", {}, "no command rnu", "Did you mean run?"),
    ("run -np 2 --fusion-treshold-mb 1 true", {}, "--fusion-treshold-mb", "--fusion-threshold-mb?"),
    ("run -np 2 --qqqqqqqq true", {}, "option --qqqqqqqq", "horovodrun --help"),
    ("run -np 2 --debug bucket_bytes=x true", {}, "bucket_bytes='x' must be a whole number", "PACELINE_DEBUG"),
    ("run -np 2 --bucket-bytes 5 true", {}, "--bucket-bytes", "Use --debug bucket_bytes=VALUE."),
    ("run -np 2 --no-armed true", {}, "--no-armed", "Use --debug armed=no."),
    ("doctor --options", {"PACELINE_WAKE": "events"}, "PACELINE_WAKE is not an option", "PACELINE_DEBUG=wake=VALUE."),
    ("run -np 2 --drain-limit-s", {}, "requires an argument", "--help"),
    ("run -np 2 --fusion absent:fastest true", {}, "importing 'absent' raises", "module:function"),
    ("record -np 2 --fusion os:fork_ true", {}, "os has no 'fork_'", "Did you mean fork"),
    # Variables.
    ("doctor --options", {"PACELINE_EXCHANG": "solo"}, "PACELINE_EXCHANG is not an option", "mean PACELINE_EXCHANGE?"),
    ("doctor --options", {"PACELINE_EXCHANGE": "Solo"}, "PACELINE_EXCHANGE='Solo'", "PACELINE_EXCHANGE"),
    ("doctor --options", {"PACELINE_PROGRESS": "maybe"}, "must be 1 or 0", "PACELINE_PROGRESS"),
    ("doctor --options", {"PACELINE_FUSION": " "}, "must not be empty", "PACELINE_FUSION"),
    *[
        (line, {"PACELINE_DRAIN_LIMIT": "5"}, "PACELINE_DRAIN_LIMIT is not an option", "mean PACELINE_DRAIN_LIMIT_S?")
        for line in ("doctor --options", "run -np 1 true", "horovod clean", "demo")
    ],
    ("doctor --options --all", {}, "no option --all", "--help"),
    # Traces and pictures.
    ("record -o absent/t.json -np 2 true", {}, "{tmp}/absent of the trace t.json does not exist", "Make it"),
    ("record -o {tmp} -np 2 true", {}, "is a folder", "Name a file in it"),
    ("record --plot absent/p.png -np 2 true", {}, "{tmp}/absent of the picture p.png does not exist", "Make it"),
    ("record --plot p.docx -np 2 true", {}, ".docx is none of", ".png, .pdf or .svg"),
    ("record --plot {tmp} -np 2 true", {}, "is a folder", "Name a file in it"),
    ("record --perfetto absent/t.json -np 2 true", {}, "{tmp}/absent of the timeline t.json does not exist", "Make it"),
    ("record --record t.json -np 2 true", {}, "--record belongs to", "-o FILE"),
    ("plan", {}, "Missing argument 'TRACE'", "--help"),
    ("plan absent.json", {}, "absent.json cannot be read", "paceline record"),
    ("plan text.txt", {}, "cut short or not JSON", "paceline record"),
    ("plan a.trace.json", {}, "not a Paceline trace", "paceline record"),
    ("plan {tmp}", {}, "cannot be read: Is a directory", "paceline record"),
    ("plan t.json --policy optimla", {}, "optimla", "Did you mean optimal?"),
    ("plan t.json --cycle-time-ms -1", {}, "--cycle-time-ms -1", "at least 0"),
    ("plan t.json --threshold-mb nan", {}, "--threshold-mb nan", "at least 0"),
    # The rest.
    ("demo --only jax", {}, "'jax' is not one of", "demo --help"),
    ("demo --step 3", {}, "paceline demo has no option --step", "Did you mean --steps?"),
    ("demo --steps none", {}, "'none' is not a valid", "paceline demo --help"),
    ("demo --steps 0", {}, "0 is not in the range", "paceline demo --help"),
    ("demo --output text.txt/x", {}, "text.txt/x cannot be made", "--output"),
    ("horovod install --mip", {}, "no option --mip", "Did you mean --mpi?"),
    ("horovod isntall", {}, "no command isntall", "Did you mean install?"),
    ("horovod build --build-jobs 1", {}, "no option --build-jobs", "CMAKE_BUILD_PARALLEL_LEVEL"),
    ("horovod build --cache-dir text.txt/cache", {}, "no wheel for this build and cannot be written", "--cache-dir"),
]
# fmt: on


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_variables: None) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "text.txt").write_text("text")
    (tmp_path / "a.trace.json").write_text(json.dumps({"format": "another"}))


@pytest.mark.parametrize(
    ("line", "variables", "problem", "remedy"), MISTAKES, ids=[f"{one[1] or ''}{one[0]}" for one in MISTAKES]
)
def test_mistake(
    line: str, variables: dict[str, str], problem: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(cli.main, line.format(tmp=tmp_path).split(" "))
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    first, second = result.stderr.splitlines()
    assert first.startswith("Error: ")
    assert problem.format(tmp=tmp_path) in first
    assert remedy.format(tmp=tmp_path) in second


def test_unwritable_and_unknown_folders_are_done_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/proc/nowhere")
    assert mistakes.cache_arguments([]) == ["--disable-cache"]
    assert mistakes.cache_arguments(["--disable-cache"]) == []
    monkeypatch.setenv("HOME", str(tmp_path))
    assert mistakes.cache_arguments([]) == []

    # A user unknown to the system has a cache.
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert f"paceline-{os.getuid()}" in str(config.read({}).cache_dir)


def test_backend_of_matplotlib_is_of_no_importance() -> None:
    code = "from pathlib import Path; from paceline.launch import outputs; outputs.check_picture(Path('p.png'))"
    env = {**os.environ, "MPLBACKEND": "nonsense"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_mpi_that_was_not_built_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built_with, "known", lambda part: part != "mpi")
    result = CliRunner().invoke(cli.main, ["run", "-np", "2", "--mpi", "true"])
    assert result.exit_code == 2
    first, second = result.stderr.splitlines()
    assert "built without MPI" in first and "HOROVOD_WITH_MPI=1 paceline horovod install" in second


WIDTHS = (60, 80, 120)


def every_command(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Words of all commands; a group's words precede those of its commands."""
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
    """Assert that each of `words` is in one line, and nothing was truncated."""
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
    table.add_row("ring", "16.36", "11.56 .. 21.16", "3.775", "0.001589", "", "", "0.948", "", "", "4.381 ~", "8.805")
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
    assert len(table) < 7 * len(config.OPTIONS)


@pytest.mark.parametrize("words", [["doctor", "--options"], ["--help"], ["run", "--help"]], ids=" ".join)
def test_reader_that_has_seen_enough_is_no_failure(words: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "paceline.launch.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(300) == 0


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
