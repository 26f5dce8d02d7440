"""The command: what it refuses and how it says so, without Horovod doing any work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import paceline
from paceline import config
from paceline.launch import cli

pytestmark = pytest.mark.usefixtures("no_variables")


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli.main, words)


def start(*words: str, python: tuple[str, ...] = (), **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *python, "-m", "paceline.launch.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **variables})


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
    assert len(cli.COMMANDS) <= 9
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
    (tmp_path / "wheels" / "key").mkdir(parents=True)
    assert invoke("horovod", "clean", "--cache-dir", str(tmp_path)).exit_code == 0
    assert list(tmp_path.iterdir()) == []
    assert "empty already" in invoke("horovod", "clean", "--cache-dir", str(tmp_path)).stderr


def test_demo_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import util

    found = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name, *rest: None if name == "sklearn" else found(name, *rest))
    refused(invoke("demo"), "scikit-learn", "Run `pip install 'scikit-learn<")
    frameworks = ("torch", "keras", "tensorflow")
    monkeypatch.setattr(util, "find_spec", lambda name, *rest: None if name in frameworks else found(name, *rest))
    result = invoke("demo")
    assert result.exit_code == 2
    assert "PyTorch is left out: torch is not installed." in result.stderr
    assert "Keras is left out: keras, tensorflow is not installed." in result.stderr
    assert "No framework is installed" in result.stderr


def test_run_names_horovod_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import util

    found = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name, *rest: None if name == "horovod" else found(name, *rest))
    refused(invoke("run", "-np", "2", "true"), "Horovod is not installed", "paceline horovod install")
