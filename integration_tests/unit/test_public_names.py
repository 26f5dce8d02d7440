"""Every public name of ours has a test: what nobody tries does not stand where users look."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from paceline.registry.exchanges import SETTINGS

ROOT = Path(__file__).resolve().parents[2]
TESTS = sorted((ROOT / "integration_tests").rglob("*.py"))
# Where users find names, by import name; `_OURS` lists them, or all that stands at the top without an underscore.
FACES = {
    "paceline.torch": "frameworks/torch/__init__.py",
    "paceline.tensorflow": "frameworks/tensorflow/__init__.py",
    "paceline.keras": "frameworks/keras/__init__.py",
    "paceline.keras.callbacks": "frameworks/keras/callbacks.py",
    "paceline.keras.elastic": "frameworks/keras/elastic.py",
}


def offered(source: str) -> set[str]:
    """The public names of a face, read without importing its framework."""
    tree = ast.parse(source)
    found = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
            if target.id == "_OURS" and isinstance(node.value, ast.List):
                return {str(ast.literal_eval(one)) for one in node.value.elts if isinstance(one, ast.Constant)} | {
                    *(SETTINGS if any(isinstance(one, ast.Starred) for one in node.value.elts) else ())
                }
            found.add(target.id)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names if alias.asname == alias.name}  # `as` itself: offered on
    return {name for name in found if not name.startswith("_")}


def tried(face: str, name: str, sources: dict[Path, str]) -> bool:
    """Whether a test that uses the face's package takes `name` from a module (`hvd.name`), or imports it from there."""
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
