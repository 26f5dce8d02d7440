"""Quoting of user words for the languages of the files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence


def shell(words: Iterable[str]) -> str:
    """Return a command line for sh and bash."""
    return shlex.join(words)


def exports(variables: Mapping[str, str]) -> list[str]:
    """Return lines that set these variables in bash."""
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def yaml(text: str) -> str:
    """Return a YAML string: JSON strings are valid YAML, and never read as numbers or booleans."""
    return json.dumps(text, ensure_ascii=False)


def kubernetes(text: str) -> str:
    """Escape a string in commands and variables of pods, where `$(NAME)` means a variable and `$$` a dollar."""
    return text.replace("$", "$$")


def compose(text: str) -> str:
    """Escape a string in a compose file, where `$` begins a variable and `$$` is a dollar."""
    return text.replace("$", "$$")


def yaml_list(words: Sequence[str]) -> list[str]:
    """Return the lines of a YAML list."""
    return [f"- {yaml(word)}" for word in words]


def dockerfile(text: str) -> str:
    """Return the value of an ENV line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{escaped}"'
