"""Packages and folders that setup.py declares, read without running it."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def declared(name: str, root: Path = ROOT) -> Any:
    """Return the literal that setup.py assigns to `name`, or passes as the keyword argument `name` of setup().

    Raises KeyError if there is neither.
    """
    tree = ast.parse((root / "setup.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in node.targets):
            return ast.literal_eval(node.value)
        if isinstance(node, ast.keyword) and node.arg == name:
            return ast.literal_eval(node.value)
    raise KeyError(f"setup.py says nothing about {name}")


def packages(root: Path = ROOT) -> dict[str, Path]:
    """Import name -> folder, for every package."""
    return {
        ".".join((name, *made.parent.relative_to(root / folder).parts)): made.parent
        for name, folder in declared("FLOORS", root).items()
        for made in sorted((root / folder).rglob("__init__.py"))
    }


def shipped(root: Path = ROOT) -> dict[str, Path]:
    """Packages of the distribution: all except the ones that measure."""
    left_out = [root / one for one in declared("LEFT_OUT", root)]
    return {name: folder for name, folder in packages(root).items() if not any(map(folder.is_relative_to, left_out))}


def link_tree(tree: Path, root: Path = ROOT) -> dict[str, str]:
    """Replace `tree` by links to all sources under their import names, for tools that find modules by folders.

    Returns a map from path of a link to path in the repository.
    """
    shutil.rmtree(tree, ignore_errors=True)
    real = {}
    for name, folder in packages(root).items():
        place = tree.joinpath(*name.split("."))
        place.mkdir(parents=True, exist_ok=True)
        for source in sorted(path for path in folder.iterdir() if path.suffix in (".py", ".pyi", ".typed")):
            link = place / source.name
            link.symlink_to(source)
            real[str(link.relative_to(root) if link.is_relative_to(root) else link)] = str(source.relative_to(root))
    return real
