"""Checks of the documentation's command lines with the parsers of the programs themselves; nothing is run."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import click

from integration_tests.support.packages import ROOT
from integration_tests.support.pages import OURS, STARTERS, Command
from paceline import config
from paceline.common_settings import HOROVODS
from paceline.errors import UserError
from paceline.examples.benchmarks import cases
from paceline.examples.benchmarks.cluster.__main__ import cluster_command
from paceline.examples.benchmarks.command import main as benchmarks_command
from paceline.launch import flags, horovodrun
from paceline.launch.cli import main as paceline_command
from paceline.launch.plan.group import Plan

ELLIPSES = ("...", "…")
# Words of the pages in the place of a value -> a value that parsers accept.
PLACEHOLDERS = {"R": "0", "N": "1"}
INSTEAD_OF_ELLIPSIS = {"template": "slurm", "-o": "FILE", "--host-discovery-script": "FILE"}
_VARIABLE = re.compile(r"\$\{?\w+\}?|<\w+>")
_ASSIGNMENT = re.compile(r"([A-Z_][A-Z0-9_]*)=(.*)", re.DOTALL)
_CAPITALS = re.compile(r"[A-Z][A-Z_]*")
# They need no command for the ranks.
COMPLETE_ALONE = ("probe",)
# Lists of systems have no common name in the modules of the benchmarks.
_SYSTEMS = ("SYSTEMS", "CODINGS")


def problems(command: Command) -> Iterator[str]:
    """Yield everything that the programs in `command` would refuse."""
    words = [_VARIABLE.sub("1", word) for word in command.words]
    for problem in _words(words, command.complete):
        yield f"{command.page}, line {command.line}: {' '.join(command.words)}: {problem}"


def _words(words: Sequence[str], complete: bool) -> Iterator[str]:
    """Check variables in front, then the program; of a starter's words those from the first program on."""
    words = list(words)
    while words and (_ASSIGNMENT.fullmatch(words[0]) or words[0] in ("sudo", "env", "exec", "export")):
        if given := _ASSIGNMENT.fullmatch(words[0]):
            yield from variable(given[1], given[2])
        words = words[1:]
    if not words:
        return
    program, rest = words[0], words[1:]
    if program in STARTERS:
        at = next((at for at, word in enumerate(rest) if word in OURS), len(rest))
        yield from (problem for name in _exported(rest[:at]) for problem in variable(name, None))
        yield from _words(rest[at:], complete)
    elif program == "paceline":
        yield from _paceline(rest, complete)
    elif program == "horovodrun":
        yield from _horovodrun(rest)
    elif program == "make":
        yield from _make(rest)
    elif program in OURS:
        yield from _python(rest)


def _exported(words: Sequence[str]) -> list[str]:
    """Return variables that mpirun exports."""
    return [name.partition("=")[0] for flag, name in itertools.pairwise(words) if flag == "-x"]


def variable(name: str, value: str | None) -> Iterator[str]:
    """Check a variable and, where the page shows one, its value."""
    known = {option.variable: option for option in config.OPTIONS}
    if name.startswith(config.PREFIX):
        if name not in known:
            yield f"there is no option {name}"
        elif value and not is_placeholder(value):
            try:
                config.parse(known[name], value, name)
            except UserError as error:
                yield error.problem
    elif name.startswith("HOROVOD_") and name not in variables_of_horovod():
        yield f"Horovod does not have {name}"


def is_placeholder(value: str) -> bool:
    """Return True for an ellipsis, a word in capitals, and the form name=value."""
    return value.strip("'\"") in ELLIPSES or bool(_CAPITALS.fullmatch(value)) or "=VALUE" in value or "name=" in value


@cache
def variables_of_horovod() -> frozenset[str]:
    """Return names in the installed Horovod, in its libraries' strings, and in Paceline's code that builds it."""
    spec = importlib.util.find_spec("horovod")
    assert spec is not None and spec.origin is not None
    installed = Path(spec.origin).parent
    files = [*installed.rglob("*.py"), *installed.rglob("*.so"), *(ROOT / "plugin" / "horovod").glob("*.py")]
    found = {name.decode() for path in files for name in re.findall(rb"HOROVOD_[A-Z0-9_]+", path.read_bytes())}
    return frozenset(found | {one.name for one in HOROVODS})


def _paceline(words: Sequence[str], complete: bool) -> Iterator[str]:
    whole = not any(word in ELLIPSES for word in words)
    parsed = _filled_in(words)
    if parsed and _CAPITALS.fullmatch(parsed[0]):  # paceline COMMAND --help
        return
    try:
        context = _context(paceline_command, parsed)
    except click.exceptions.Exit:  # --help
        return
    except (click.MissingParameter, click.exceptions.NoArgsIsHelpError) as error:
        if complete and whole:
            yield error.format_message()
        return
    except click.BadOptionUsage as error:
        if complete or not error.message.endswith("requires an argument."):
            yield error.format_message()
        return
    except click.UsageError as error:
        if "does not exist" not in error.message:  # a file of the user
            yield error.format_message()
        return
    except UserError as error:
        yield error.problem
        return
    given = context.params
    try:
        config.read({}, flags.texts(given))
        command = list(given.get("command") or ())
        theirs = given.get("horovodrun_arguments")
        if theirs and (complete or command):
            horovodrun.parsed(theirs, command or ["true"])
        if complete and whole and "command" in given and not command and context.info_name not in COMPLETE_ALONE:
            yield "there is no command for the ranks"
        yield from _words(command, complete)
    except UserError as error:
        yield error.problem


def _filled_in(words: Sequence[str]) -> list[str]:
    """Replace placeholders; an ellipsis stands for a value after a short flag, for a scheduler, or for nothing."""
    found: list[str] = []
    for before, word in itertools.pairwise(["", *words]):
        if word not in ELLIPSES:
            found.append(PLACEHOLDERS.get(word, word))
        elif before in INSTEAD_OF_ELLIPSIS:
            found.append(INSTEAD_OF_ELLIPSIS[before])
    return found


def _context(command: click.Command, words: list[str]) -> click.Context:
    """Parse `words` by a command, or by the command of a group that they name."""
    context = None
    name = command.name
    while True:
        if isinstance(command, Plan):
            words = command.with_command(words)
        context = command.make_context(name, list(words), parent=context)
        if not isinstance(command, click.Group):
            return context
        _, rest, _ = command.make_parser(context).parse_args(list(words))
        if not rest:
            return context
        name, found, words = command.resolve_command(context, rest)
        assert found is not None
        command = found


def _horovodrun(words: Sequence[str]) -> Iterator[str]:
    try:
        parts = flags.split(_filled_in(words), {}, horovodrun.FLAGS, "horovodrun")
        if parts.theirs and (parts.command or words[-1:] == ["..."]):
            horovodrun.parsed(parts.theirs, parts.command or ["true"])
    except UserError as error:
        yield error.problem
        return
    yield from _words(parts.command, True)


@cache
def _makefile() -> str:
    return (ROOT / "Makefile").read_text()


def _make(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        if given := _ASSIGNMENT.fullmatch(word):
            if not re.search(rf"\b{given[1]}\b", _makefile()):
                yield f"the Makefile does not use {given[1]}"
        elif not word.startswith("-") and not re.search(rf"^{re.escape(word)}:", _makefile(), re.MULTILINE):
            yield f"the Makefile has no target {word}"


def _python(words: Sequence[str]) -> Iterator[str]:
    if words[:1] == ["-m"]:
        module, given = words[1], [word for word in words[2:] if word not in ELLIPSES]
        if module == "examples.benchmarks":
            yield from _benchmarks(given)
        elif module == "examples.benchmarks.cluster":
            yield from _cluster(given)
        elif importlib.util.find_spec(module.replace("examples", "paceline.examples", 1)) is None:
            yield f"there is no module {module}"
        elif module.startswith("integration_tests."):
            yield from _flags_in(ROOT / module.replace(".", "/"), given)
    elif words and words[0].startswith(("examples/", "integration_tests/")):
        yield from _flags_in(ROOT / words[0], words[1:])


def _flags_in(path: Path, words: Sequence[str]) -> Iterator[str]:
    """Look for each flag in the sources of a script and of what lies beside it."""
    folders = {path, path.parent, ROOT / "examples"} if path.is_relative_to(ROOT / "examples") else {path, path.parent}
    sources = [path.with_suffix(".py"), *(source for folder in folders for source in folder.glob("*.py"))]
    known = " ".join(source.read_text() for source in sources if source.is_file())
    for word in words:
        if word.startswith("--") and f'"{word.partition("=")[0]}"' not in known and word != "--":
            yield f"{path.relative_to(ROOT)} has no option {word}"


def _cluster(words: list[str]) -> Iterator[str]:
    try:
        context = cluster_command.make_context("cluster", words)
    except click.UsageError as error:
        yield error.format_message()
        return
    yield from _words(context.params["command"], True)


def _benchmarks(words: list[str]) -> Iterator[str]:
    try:
        context = benchmarks_command.make_context("benchmarks", words)
        given = context.params["words"]
        if any(_CAPITALS.fullmatch(word) for word in given):  # any case
            return
        settings = [word for word in given if "=" in word]
        for case in cases.chosen([word for word in given if "=" not in word]):
            _check_systems(case.kind, case.with_settings(settings).parsed())
    except click.UsageError as error:
        yield error.format_message()
    except (UserError, KeyError) as error:
        yield getattr(error, "problem", repr(error))


def _check_systems(kind: str, settings: Any) -> None:
    """Raise UserError or KeyError for a system that benchmarks of this kind do not have."""
    module = importlib.import_module(f"paceline.examples.benchmarks.{cases.KINDS[kind]}")
    if kind == "outside":
        module.checked(settings)
        return
    for name in getattr(settings, "systems", ()):
        if kind == "steps":
            module.find(name, "mini")
        elif kind == "collectives":
            module.find(name)
        else:
            known = next((getattr(module, one) for one in _SYSTEMS if hasattr(module, one)), None)
            known = module.model.SYSTEMS if known is None else known
            if name not in known:
                raise KeyError(f"{kind} has no system {name}")
