"""Facts that the pages of the API cannot read from the sources alone (an extension of Griffe)."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import griffe

from paceline.registry import exchanges

ROOT = Path(__file__).resolve().parents[1]
# Public functions that another function makes for each framework: name -> file and function.
MADE = {
    "average_variables": ("plugin/exchange/averaging.py", "averager"),
    "check_replicas": ("plugin/exchange/replicas.py", "checker"),
    "exchange_stats": ("plugin/partial/stats.py", "reader"),
    "flush_partial": ("plugin/partial/calls.py", "calls"),
    "fusion_report": ("plugin/fusion/adapters.py", "reporter"),
    "mean": ("plugin/exchange/means.py", "mean_of_arrays"),
    "metrics": ("plugin/metrics/values.py", "metrics_of"),
    "partial_allreduce": ("plugin/partial/calls.py", "calls"),
    "partial_allreduce_async": ("plugin/partial/calls.py", "calls"),
}
# Functions that declare a field of an exchange's settings.
SETTINGS = ("setting", "sync_every")
FRAMEWORKS = ("torch", "tensorflow", "keras")
PAGE = re.compile(r"(?<![\[/\w])(?<!\]\()docs/([\w/]+)\.md")


class PublicNames(griffe.Extension):
    """Documents functions that are made at run time, the exchanges in docstrings, and links to pages."""

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """List the exchanges where a docstring has their place, as the decorator does at run time."""
        if func.docstring is not None and "{exchanges}" in func.docstring.value:

            def listed() -> None: ...

            listed.__doc__ = func.docstring.value
            func.docstring.value = str(exchanges.lists_exchanges(listed).__doc__)

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Give the modules of the frameworks the functions that are made for them."""
        for framework in FRAMEWORKS:
            module = pkg[framework]
            for name, (file, maker) in MADE.items():
                if name in module.members and not _is_defined(module.members[name]):
                    module.set_member(name, _inner(ROOT / file, maker, name))
        _finish(pkg)


def _finish(parent: Any) -> None:
    """Turn paths of pages in docstrings into links, and declarations of settings into their defaults.

    All pages of the API are in one folder of docs/.
    """
    for member in parent.members.values():
        if not member.is_alias:
            if member.docstring is not None:
                member.docstring.value = PAGE.sub(r"[docs/\1.md](../\1.md)", member.docstring.value)
            value = member.value if member.is_attribute else None
            if isinstance(value, griffe.ExprCall) and str(value.function) in SETTINGS:
                member.value = value.arguments[0]
            _finish(member)


def _is_defined(member: Any) -> bool:
    """Return True if the name was imported from where `def` defines it."""
    try:
        return bool(member.is_function)
    except griffe.AliasResolutionError:
        return False


def _inner(path: Path, maker: str, name: str) -> griffe.Function:
    """The function `name` that is defined in the function `maker` of a file."""
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    (outer,) = (node for node in functions if node.name == maker)
    (inner,) = (node for node in ast.walk(outer) if isinstance(node, ast.FunctionDef) and node.name == name)
    return griffe.visit(path.stem, path, ast.unparse(inner)).functions[name]
