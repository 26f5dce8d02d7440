"""Look for names of a framework's `hvd`: python -m integration_tests.support.page_names torch <uses.json.

In a process of its own, because the libraries of two frameworks do not share one. Prints a list: "", or what is wrong.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from typing import Any


def problem(hvd: Any, name: str, count: int | None, keywords: list[str]) -> str:
    """Return what is wrong with a name below `hvd` and the arguments of its call; "" if nothing is."""
    found, path = hvd, "hvd"
    for part in name.split("."):
        if not hasattr(found, part):
            return f"{path} has no {part}"
        found, path = getattr(found, part), f"{path}.{part}"
    if count is None:
        return ""
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # compiled
        return ""
    try:
        signature.bind_partial(*[None] * count, **dict.fromkeys(keywords))
    except TypeError as error:
        return f"{path}: {error}"
    return ""


def main() -> None:
    """Answer."""
    hvd = importlib.import_module(f"paceline.{sys.argv[1]}")
    print(json.dumps([problem(hvd, *use) for use in json.load(sys.stdin)]))


if __name__ == "__main__":
    main()
