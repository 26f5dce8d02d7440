"""Errors and texts of ours that Horovod, Ray and Spark send between processes are the same after the journey."""

from __future__ import annotations

import ast
import importlib
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from integration_tests.support.packages import packages

TWO = ("The problem.", "The remedy.")


def _schedule_error() -> Exception:
    from paceline.stages import schedules
    from paceline.stages.flow import ScheduleError

    return ScheduleError(schedules.make("gpipe", 2, 3), 1, "its update", "it never comes")


# What to make each of, by module and name.
EXAMPLES: dict[str, tuple[Any, ...] | Callable[[], Exception]] = {
    "paceline.errors.UserError": TWO,
    "paceline.errors.UsageError": TWO,
    "paceline.errors.ranks_lost": TWO,
    "paceline.fusion.planning.PolicyFailed": TWO,
    "paceline.horovod.load.HorovodMissing": TWO,
    "paceline.horovod.shims.glue.ConnectError": ("Rank 0 of 2 could not connect.",),
    "paceline.horovod.shims.private_environment.Command": ("env A=1 run", {"A": "1"}, "run"),
    "paceline.keras.backend.NotUsable": TWO,
    "paceline.examples.benchmarks.cluster.errors.ClusterError": (*TWO, "what a command printed"),
    "paceline.launch.rank.channel.Closed": ("it broke",),
    "paceline.native.mail.MailError": ("it failed",),
    "paceline.native.mail.StageLost": ("Rank 3 died: its host is gone",),
    "paceline.native.mail.HorovodEnded": ("Horovod was shut down",),
    "paceline.native.mail.StageFailed": ("Rank 3 could not go on: its stage failed:\nno", 3, "no"),
    "paceline.stages.flow.ScheduleError": _schedule_error,
}
# Of one process, and of one module: its name begins with an underscore.
BEGINNINGS = {"Exception", "RuntimeError", "ValueError", "ImportError", "KeyError", "TypeError", "OSError"} | {
    "HorovodInternalError", "str", "bytes", "int", "float", "dict", "list", "tuple", "set",
}  # fmt: skip


def _classes() -> Iterator[tuple[str, str, set[str]]]:
    """Module, name and bases of each public class in the sources."""
    for package, folder in packages().items():
        for path in folder.glob("*.py"):
            module = package if path.stem == "__init__" else f"{package}.{path.stem}"
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    yield module, node.name, {base.id for base in node.bases if isinstance(base, ast.Name)}


def test_every_such_class_is_looked_at() -> None:
    classes, known, found = list(_classes()), set(BEGINNINGS), set[str]()
    while True:
        more = {f"{module}.{name}" for module, name, bases in classes if bases & known}
        if more == found:
            break
        found, known = more, known | {name.rpartition(".")[2] for name in more}
    assert found == set(EXAMPLES) - {"paceline.errors.ranks_lost"}


def _texts(error: BaseException) -> dict[str, str]:
    return {name: str(value) for name, value in vars(error).items() if not name.startswith("_")}


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_the_same_after_the_journey(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    example = EXAMPLES[name]
    made = example() if callable(example) else getattr(importlib.import_module(module), attribute)(*example)
    found = pickle.loads(pickle.dumps(made))
    assert str(found) == str(made)
    if isinstance(made, BaseException):  # a command is Horovod's text again
        assert type(found) is type(made)
        assert _texts(found) == _texts(made)
