"""Rules for all sources."""

from __future__ import annotations

import ast
import importlib
import pickle
import re
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import paceline.bridge
import paceline.core
from integration_tests.support.packages import packages
from paceline.registry.exchanges import SETTINGS

TWO = ("The problem.", "The remedy.")


def _schedule_error() -> Exception:
    from paceline.stages import schedules
    from paceline.stages.flow import ScheduleError

    return ScheduleError(schedules.make("gpipe", 2, 3), 1, "its update", "it never comes")


# Arguments for an example of each class, by module and name.
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
    "paceline.native.communicator.CommunicatorError": ("it failed",),
    "paceline.native.communicator.StageLost": ("Rank 3 died: its host is gone",),
    "paceline.native.communicator.HorovodEnded": ("Horovod was shut down",),
    "paceline.native.communicator.StageFailed": ("Rank 3 could not go on: its stage failed:\nno", 3, "no"),
    "paceline.stages.flow.ScheduleError": _schedule_error,
}
# Private classes of one module begin with an underscore.
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


ROOT = Path(__file__).resolve().parents[2]
TESTS = sorted((ROOT / "integration_tests").rglob("*.py"))
# Modules in which users find names, by import name; `_OURS` lists the names, or else all top-level public ones count.
FACES = {
    "paceline.torch": "frameworks/torch/__init__.py",
    "paceline.tensorflow": "frameworks/tensorflow/__init__.py",
    "paceline.keras": "frameworks/keras/__init__.py",
    "paceline.keras.callbacks": "frameworks/keras/callbacks.py",
    "paceline.keras.elastic": "frameworks/keras/elastic.py",
}


def offered(source: str) -> set[str]:
    """Public names of such a module, read without importing its framework."""
    tree = ast.parse(source)
    found = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
            if target.id == "_OURS" and isinstance(node.value, ast.List):
                starred = {ast.unparse(one.value) for one in node.value.elts if isinstance(one, ast.Starred)}
                exchanges = {"SETTINGS": SETTINGS}
                names = {str(ast.literal_eval(one)) for one in node.value.elts if isinstance(one, ast.Constant)}
                return names.union(*(exchanges.get(one, ()) for one in starred))
            found.add(target.id)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names if alias.asname == alias.name}  # `as` itself: re-exported
    return {name for name in found if not name.startswith("_")}


def tried(face: str, name: str, sources: dict[Path, str]) -> bool:
    """True if a test of the package takes `name` from a module (`hvd.name`), or imports it from there."""
    package = ".".join(face.split(".")[:2])
    taken = re.compile(rf"\.{name}\b|from {re.escape(face)} import [^\n]*\b{name}\b")
    return any(package in source and taken.search(source) for source in sources.values())


@pytest.fixture(scope="module")
def sources() -> dict[Path, str]:
    return {path: path.read_text() for path in TESTS if path != Path(__file__)}


@pytest.mark.parametrize(("face", "file"), FACES.items())
def test_every_public_name_has_a_test(face: str, file: str, sources: dict[Path, str]) -> None:
    names = offered((ROOT / file).read_text())
    assert len(names) > 2, f"the scan finds nothing in {file}"
    untried = " ".join(sorted(name for name in names if not tried(face, name, sources)))
    assert untried == "", f"{face} offers these, and no test uses them: test them or take them out"


@pytest.mark.parametrize(
    ("file", "include", "allowed"),
    [
        ("core/fusion/gate.cc", '"core/fusion/gate.h"', True),
        ("core/fusion/gate.cc", "<vector>", True),
        ("core/failure/watch_socket.cc", "<sys/socket.h>", True),
        ("core/fusion/gate.cc", '"bridge/hooks.h"', False),
        ("core/fusion/gate.cc", '"horovod/common/common.h"', False),
        ("core/fusion/gate.cc", "<pybind11/pybind11.h>", False),
        ("core/binding.cc", "<pybind11/pybind11.h>", True),
        ("bridge/hooks.cc", '"horovod/common/operations.h"', True),
        ("bridge/hooks.cc", '"torch/extension.h"', False),
        ("bridge/hooks.cc", '"bridge/partial/partial.h"', False),
        ("bridge/participants.cc", '"bridge/partial/partial.h"', True),
        ("bridge/partial/partial.cc", '"bridge/partial/rounds.h"', True),
        ("bridge/partial/partial.cc", '"bridge/message_plan.h"', True),
        ("bridge/partial/partial.cc", '"bridge/fusion/merger.h"', False),
        ("bridge/partial/partial.cc", "<gloo/math.h>", False),
    ],
)
def test_a_layer_includes_itself_and_those_below(file: str, include: str, allowed: bool) -> None:
    wrong = runpy.run_path(str(ROOT / ".ci" / "check-includes"))["wrong"]
    assert (wrong(file, include[0] == '"', include[1:-1]) is None) == allowed


_FOLDERS = [Path(str(package.__file__)).parent for package in (paceline.bridge, paceline.core)]
_STATIC = re.compile(r"^\s*static\s+(?!constexpr|inline\s+constexpr|assert|std::once_flag)[^(]*[=;{]")
_KEPT = re.compile(r"^\s*static\s+(const\s+)?[\w:<>]+\s*\*\s*(const\s+)?\w+\s*=\s*new\b")
_IN_NAMESPACE = re.compile(r"^(?:inline\s+)?(?:const\s+)?std::(?!mutex\b|atomic\b)[\w:<>, *]+\s\w+\s*(?:[={;]|\(\")")


def _destroyed(text: str) -> list[str]:
    return [
        line.strip()
        for line in text.splitlines()
        if (_STATIC.match(line) and not _KEPT.match(line)) or _IN_NAMESPACE.match(line)
    ]


def test_nothing_is_destroyed_before_the_background_thread_ends() -> None:
    bad = ["  static const auto context = std::make_shared<Context>();", "static std::string name;",
           'const std::string kPrefix = "x";', "std::vector<int> all;"]  # fmt: skip
    good = ["  static auto* kept = new std::string;", "  static const auto* kept = new std::string(one);",
            "std::mutex mutex;", "static constexpr int64_t kOne = 1;", "  static int32_t Next();",
            "std::string Name(int n) {", "  const std::string local = name;"]  # fmt: skip
    assert _destroyed("\n".join(bad)) == [line.strip() for line in bad]
    assert _destroyed("\n".join(good)) == []
    # Static objects are never destroyed before the background thread ends.
    sources = [path for folder in _FOLDERS for path in sorted(folder.rglob("*")) if path.suffix in (".cc", ".h")]
    assert len(sources) > 50
    found = {path.name: lines for path in sources if (lines := _destroyed(path.read_text()))}
    assert not found, "make them with `new` and never delete them, or make them constexpr"
