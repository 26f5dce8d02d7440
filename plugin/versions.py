"""Supported and tested versions of Python and of the frameworks.

Declared here once. `paceline doctor` and `.ci/pin` read these tables, `.ci/versions` writes them into README.md and
docs/developers/horovod.md, and integration_tests/unit/test_versions.py compares them with pyproject.toml and the matrix
of CI.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Supported:
    """Releases of one package.

    Attributes:
        title: name for readers.
        releases: every supported minor release, oldest first.
        tested: releases that passed the tests; docs/developers/developing.md has the criterion.
        pinned: release that `make` installs; empty for the newest of the range.
    """

    title: str
    releases: tuple[str, ...]
    tested: tuple[str, ...]
    pinned: str = ""

    @property
    def specifier(self) -> str:
        """Range of versions in pip's words: from the oldest release up to the one after the newest."""
        major, minor = _release(self.releases[-1])
        return f">={self.releases[0]},<{major}.{minor + 1}"

    @property
    def span(self) -> str:
        """Range of versions for readers."""
        oldest, newest = self.releases[0], self.releases[-1]
        return f"{oldest} to {newest}"

    def is_supported(self, version: str) -> bool:
        """Return whether `version`, such as 2.13.0+cpu, belongs to a supported release."""
        return _release(version) in map(_release, self.releases)

    def is_tested(self, version: str) -> bool:
        """Return whether `version` belongs to a tested release."""
        return _release(version) in map(_release, self.tested)


PYTHON = Supported("Python", ("3.10", "3.11", "3.12", "3.13"), ("3.11",))
# By import name.
FRAMEWORKS = {
    # docs/measurements/benchmarks.md is measured with the pinned release.
    "torch": Supported("PyTorch", ("2.12", "2.13", "2.14", "2.15"), ("2.13",), pinned="2.13.0"),
    "tensorflow": Supported("TensorFlow", ("2.20", "2.21"), ("2.21",)),
    "keras": Supported("Keras", ("3.12", "3.13", "3.14", "3.15"), ("3.15",)),
}
# Exception to the ranges.
NOTE = "PyTorch 2.15 needs Python 3.11 or later; its last release for Python 3.10 is 2.14."
# Distribution that the extras name, where it differs from the import name.
DISTRIBUTIONS = {"tensorflow": "tensorflow-cpu"}


def _release(version: str) -> tuple[int, int]:
    """Major and minor number; (0, 0) for a version that has none."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def distribution(name: str) -> str:
    """Name of the package that the extras install for the framework with import name `name`."""
    return DISTRIBUTIONS.get(name, name)


def oldest() -> str:
    """Return the oldest supported release of each framework as lines of a pip constraint file."""
    return "".join(f"{distribution(name)}=={one.releases[0]}.*\n" for name, one in FRAMEWORKS.items())


def markdown_table() -> str:
    """Return the table of README.md and docs/developers/horovod.md."""
    rows = ["| | supported | tested |", "| --- | --- | --- |"]
    rows += [f"| {one.title} | {one.span} | {', '.join(one.tested)} |" for one in (*FRAMEWORKS.values(), PYTHON)]
    return "\n".join([*rows, "", NOTE]) + "\n"
