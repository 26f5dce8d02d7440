"""`paceline run`: whose flag is whose, what reaches horovodrun and the ranks, and that nothing stays behind."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import pytest

from paceline import config
from paceline.errors import UserError
from paceline.fusion import plan_file
from paceline.fusion.resolve import resolve
from paceline.launch import flags, horovodrun, processes
from paceline.launch.environment import environment, remark

OURS = {"--record": 1, "--progress": 0, "--no-progress": 0}
THEIRS = {"-np": 1, "--num-proc": 1, "-p": 1, "--gloo": 0, "--cycle-time-ms": 1, "--cache-capacity": 1, "--range": 2}


def apart(line: str) -> tuple[str, str, str]:
    parts = flags.split(line.split(), OURS, THEIRS, "paceline run")
    return " ".join(parts.ours), " ".join(parts.theirs), " ".join(parts.command)


@pytest.mark.parametrize(
    ("line", "ours", "theirs", "command"),
    [
        ("-np 2 python a.py", "", "-np 2", "python a.py"),
        ("--record t -np 2 python a.py", "--record t", "-np 2", "python a.py"),
        ("-np 2 --record t --gloo python a.py", "--record t", "-np 2 --gloo", "python a.py"),
        ("--record=t -np 2 --no-progress a.py", "--record=t --no-progress", "-np 2", "a.py"),
        # Flags of the command are the command's own.
        ("-np 2 python a.py --record x --wrong", "", "-np 2", "python a.py --record x --wrong"),
        # A value may look like one of our flags or like a command.
        ("-np --record python", "", "-np --record", "python"),
        ("--range 1 5 python", "", "--range 1 5", "python"),
        # horovodrun's own habits: values attached, long flags cut short where that is unambiguous.
        ("-p22 --num-proc=2 a.py", "", "-p22 --num-proc=2", "a.py"),
        ("--num 2 --cyc 1 a.py", "", "--num 2 --cyc 1", "a.py"),
        ("-np 2 --record t -- -odd --name", "--record t", "-np 2", "-odd --name"),
        ("", "", "", ""),
    ],
)
def test_line_is_taken_apart(line: str, ours: str, theirs: str, command: str) -> None:
    assert apart(line) == (ours, theirs, command)


@pytest.mark.parametrize(
    ("line", "flag", "remedy"),
    [
        ("--recrd t a.py", "--recrd", "Did you mean --record?"),
        ("--no-progres a.py", "--no-progres", "Did you mean --no-progress?"),
        ("--c 1 a.py", "--c", "horovodrun --help"),  # two of horovodrun's begin like that
        ("-z3 a.py", "-z3", "horovodrun --help"),
    ],
)
def test_flag_that_nobody_knows_is_refused(line: str, flag: str, remedy: str) -> None:
    with pytest.raises(UserError) as caught:
        apart(line)
    assert caught.value.problem.endswith(f"option {flag}.")
    assert remedy in caught.value.remedy


def test_horovodruns_flags_are_those_of_the_installed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    parsers: list[argparse.ArgumentParser] = []
    parse = argparse.ArgumentParser.parse_args

    def kept(parser: argparse.ArgumentParser) -> argparse.Namespace:
        parsers.append(parser)
        return parse(parser)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", kept)
    horovodrun.parsed(["-np", "1"], ["true"])
    installed = {name: action.nargs for action in parsers[0]._actions for name in action.option_strings}
    assert {name: 1 if nargs is None else nargs for name, nargs in installed.items()} == horovodrun.FLAGS


def test_flags_of_ours_and_of_horovodrun_do_not_meet() -> None:
    assert {flag for option in config.OPTIONS for flag in option.flags}.isdisjoint(horovodrun.FLAGS)


@pytest.mark.parametrize(
    ("script", "code"), [("echo one; echo two >&2; exit 5", 5), ("echo two; echo one; kill -SEGV $$", 128 + 11)]
)
def test_call_gives_lines_and_the_exit_code(script: str, code: int) -> None:
    lines: list[str] = []
    assert (processes.call(["sh", "-c", script], os.environ, lines.append), sorted(lines)) == (code, ["one\n", "two\n"])


def test_call_ends_what_exceeds_its_limit_with_all_its_children() -> None:
    lines: list[str] = []
    with pytest.raises(UserError, match="did not end within 1 s"):
        processes.call(["sh", "-c", "sleep 600 & echo $!; wait"], os.environ, lines.append, limit_s=1)
    child = lines[0].strip()
    limit = time.monotonic() + 10  # it was killed, which takes effect when it next runs
    while not _gone(Path(f"/proc/{child}/stat")):
        assert time.monotonic() < limit, "a child outlived the command"
        time.sleep(0.01)


def _gone(stat: Path) -> bool:
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def told(monkeypatch: pytest.MonkeyPatch, variable: str | None = None, **given: str) -> str | None:
    """PACELINE_FUSION of the ranks where the launcher got this variable and these flags."""
    monkeypatch.delenv("PACELINE_FUSION", raising=False)
    if variable is not None:
        monkeypatch.setenv("PACELINE_FUSION", variable)
    return environment(config.read(flags=given), given).get("PACELINE_FUSION")


def test_names_of_policies_pass_unchanged(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(monkeypatch) is None
    assert told(monkeypatch, fusion="optimal") == "optimal"
    assert told(monkeypatch, variable="mgwfbp") == "mgwfbp"
    assert told(monkeypatch, variable="mgwfbp", fusion="single") == "single"
    assert capsys.readouterr().err == ""
    assert told(monkeypatch, fusion="optimul") == "optimul", "the script may register it"
    remark(config.read(flags={"fusion": "optimul"}), starts=True)
    assert "optimul is known here. Did you mean optimal? It will do if the script" in capsys.readouterr().err


@pytest.mark.parametrize("by_flag", [True, False])
@pytest.mark.parametrize("spec", ["travellers_module:halves", "file:plan.json"])
def test_functions_and_plans_travel_by_value(
    spec: str, by_flag: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [[f"allreduce.encoder.layer.{n}.attention.{part}" for part in ("weight", "bias")] for n in range(500)]
    plan_file.write(tmp_path / "plan.json", "optimal", groups)
    (tmp_path / "travellers_module.py").write_text("def halves(gradients, costs):\n    return [[0, 1], [2]]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    here = resolve(spec)
    text = told(monkeypatch, fusion=spec) if by_flag else told(monkeypatch, variable=spec)
    for file in tmp_path.iterdir():
        file.unlink()
    sys.modules.pop("travellers_module", None)
    assert text is not None
    there = resolve(text)
    plans = spec.startswith("file:")
    assert (there.name, there.digest, there.keeps_order) == (spec, here.digest, plans)
    assert there.function is not None
    assert there.function([], None) == (groups if plans else [[0, 1], [2]])  # type: ignore[arg-type]
    assert "travellers_module" not in sys.modules
    assert told(monkeypatch, fusion=text) == text, "a run within a run"
