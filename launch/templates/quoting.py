"""Words of the user in the languages of the files, each of which has signs that mean something else there."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence


def shell(words: Iterable[str]) -> str:
    """A command line for sh and bash."""
    return shlex.join(words)


def exports(variables: Mapping[str, str]) -> list[str]:
    """Lines that give bash these variables."""
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def yaml(text: str) -> str:
    """A string in YAML: JSON's are a part of it, and none is taken for a number or for yes."""
    return json.dumps(text, ensure_ascii=False)


def kubernetes(text: str) -> str:
    """A string in commands and variables of pods, where `$(NAME)` means a variable and `$$` a dollar."""
    return text.replace("$", "$$")


def compose(text: str) -> str:
    """A string in a compose file, where `$` begins a variable and `$$` is a dollar."""
    return text.replace("$", "$$")


def yaml_list(words: Sequence[str]) -> list[str]:
    """The lines of a list in YAML."""
    return [f"- {yaml(word)}" for word in words]


def dockerfile(text: str) -> str:
    """The value of an ENV line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{escaped}"'
