"""Requirements of Paceline's optional parts, from its package metadata, as a pip command."""

from __future__ import annotations

import shlex
from importlib import metadata

from packaging.requirements import Requirement


def how_to_install(extra: str) -> str:
    """Return the command that installs the packages of the extra `extra` for this Python."""
    try:
        listed = [Requirement(line) for line in metadata.requires("paceline") or ()]
    except metadata.PackageNotFoundError:  # imported from the sources, not installed
        return f"pip install '.[{extra}]' in a clone of Paceline"
    packages = [
        f"{one.name}{one.specifier}"
        for one in listed
        if one.marker and one.marker.evaluate({"extra": extra}) and not one.marker.evaluate({"extra": ""})
    ]
    if not packages:
        raise ValueError(f"Paceline has no extra {extra!r}")
    return f"pip install {shlex.join(packages)}"
