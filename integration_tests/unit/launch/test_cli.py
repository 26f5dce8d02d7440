"""The command: what it refuses and how it says so, without Horovod doing any work."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from paceline import config
from paceline.launch import cli


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in os.environ:
        if name.startswith(config.PREFIX):
            monkeypatch.delenv(name)
    yield


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


def test_help_lists_every_command() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    assert [name for name in cli.COMMANDS if name not in result.output] == []


def test_without_arguments_five_commands_lead_a_new_user() -> None:
    result = invoke()
    assert result.exit_code == 0
    assert len(cli.FIRST_COMMANDS) == 5
    for command, _ in cli.FIRST_COMMANDS:
        assert command in result.output
        assert command.split()[0] == "paceline" and command.split()[1] in cli.COMMANDS
    assert all(len(line) <= 120 for line in result.output.splitlines())


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_loads_and_explains_itself(name: str) -> None:
    result = invoke(name, "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.output


def test_help_imports_neither_horovod_nor_a_framework_nor_rich() -> None:
    done = start("--help", python=("-X", "importtime"))
    assert done.returncode == 0
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "click" in loaded
    assert loaded.isdisjoint({"horovod", "torch", "tensorflow", "keras", "rich", "matplotlib", "numpy"})


def test_command_whose_module_is_absent_does_not_break_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.COMMANDS, "absent", ("paceline.launch.absent:command", "Not there."))
    assert invoke("options").exit_code == 0
    assert "absent" not in invoke("--help").output
    refused(invoke("absent"), "no command absent")


@pytest.mark.parametrize(
    ("words", "problem", "remedy"),
    [
        (["optoins"], "paceline has no command optoins", "Did you mean options?"),
        (["horovod", "instal"], "paceline horovod has no command instal", "Did you mean install?"),
        (["demo", "--step", "3"], "paceline demo has no option --step", "Did you mean --steps?"),
        (["demo", "--steps", "none"], "'none' is not a valid", "paceline demo --help"),
        (["demo", "--steps", "0"], "0 is not in the range", "paceline demo --help"),
        (["horovod", "build", "--build-jobs", "many"], "--build-jobs='many'", "PACELINE_BUILD_JOBS"),
        (["run", "--recrd", "x", "-np", "2", "true"], "option --recrd", "Did you mean --record?"),
        (["run", "-np", "2", "--fusion-treshold-mb", "1", "true"], "--fusion-treshold-mb", "--fusion-threshold-mb?"),
        (["run", "-np", "2", "--qqqqqqqq", "true"], "option --qqqqqqqq", "horovodrun --help"),
        (["run", "-np", "2", "--record-steps", "x", "true"], "--record-steps='x'", "PACELINE_RECORD_STEPS"),
        (["run", "-np", "2", "--record-steps"], "requires an argument", "--help"),
        (["run", "-np", "2"], "no command", "train.py"),
        (["record", "-np", "2"], "no command", "train.py"),
        (["record", "--record", "x", "-np", "2", "true"], "--record belongs to", "-o FILE"),
        (["run", "--fusion", "file:absent.json", "-np", "2", "true"], "absent.json cannot be read", "--output"),
        (["run", "--fusion", "absent:fastest", "-np", "2", "true"], "importing 'absent' raises", "module:function"),
        (["record", "--fusion", "os:fork_", "-np", "2", "true"], "os has no 'fork_'", "Did you mean fork"),
        (["record", "-o", "/absent/trace.json", "-np", "2", "true"], "/absent", "Make it"),
        (["record", "-o", "/tmp", "-np", "2", "true"], "/tmp is a folder", "Name a file in it"),
        (["record", "--plot", "/absent/step.png", "-np", "2", "true"], "/absent of the picture step.png", "Make it"),
        (["record", "--plot", "step.docx", "-np", "2", "true"], ".docx is none of", ".png, .pdf or .svg"),
    ],
)
def test_wrong_words_are_refused_with_a_remedy(words: list[str], problem: str, remedy: str) -> None:
    refused(invoke(*words), problem, remedy)


@pytest.mark.parametrize(
    "words", [["options"], ["run", "-np", "1", "true"], ["horovod", "clean"], ["demo"]], ids=lambda words: words[0]
)
def test_unknown_variable_is_refused_by_every_command(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_RECORD_STEP", "5")
    refused(invoke(*words), "PACELINE_RECORD_STEP is not an option", "Did you mean PACELINE_RECORD_STEPS?")


def test_wrong_value_is_refused_in_a_real_process_without_a_traceback() -> None:
    done = start("options", PACELINE_RECORD_STEPS="a few")
    assert done.returncode == 2
    assert done.stdout == ""
    problem, remedy = done.stderr.splitlines()
    assert "PACELINE_RECORD_STEPS='a few'" in problem
    assert "whole number" in problem
    assert "PACELINE_RECORD_STEPS" in remedy


def test_options_lists_all_with_value_and_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_RECORD_STEPS", "77")
    monkeypatch.setenv("PACELINE_CACHE_DIR", "/a/long/path" * 9)  # longer than a line: it must not fold the names
    result = invoke("options")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    for option in config.OPTIONS:
        (first,) = (number for number, line in enumerate(lines) if f" {option.variable} " in line)
        row = "".join(lines[first : first + 4]) if option.name == "cache_dir" else lines[first]
        assert ("(variable)" if option.name in ("record_steps", "cache_dir") else "(default)") in row
        for number, flag in enumerate(option.flags, first + 1):
            assert f" {flag} " in lines[number]
    assert "77 steps" in result.output


def test_horovod_clean_empties_the_cache(tmp_path: Path) -> None:
    (tmp_path / "wheels" / "key").mkdir(parents=True)
    assert invoke("horovod", "clean", "--cache-dir", str(tmp_path)).exit_code == 0
    assert list(tmp_path.iterdir()) == []
    assert "empty already" in invoke("horovod", "clean", "--cache-dir", str(tmp_path)).stderr


def test_version() -> None:
    import paceline

    assert paceline.__version__ in invoke("--version").output


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


def test_help_of_record_does_not_offer_what_it_refuses() -> None:
    help_text = invoke("record", "--help").output
    assert "--record-steps" in help_text
    assert "--record PATH" not in help_text
