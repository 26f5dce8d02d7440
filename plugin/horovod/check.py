"""Compare the Horovod that is installed with the one this Paceline expects for the frameworks at hand."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from paceline.horovod.key import changes_digest, installed_frameworks
from paceline.horovod.release import BUILT_VERSION

REMEDY = "Run `paceline horovod install` (minutes when it must build, seconds when the wheel is in the cache)."
IMPORT_TIMEOUT_S = 180

# What is looked at for every framework.
_ALWAYS = ("Horovod", "hooks and patches")


@dataclass(frozen=True)
class Finding:
    """One thing looked at."""

    what: str
    found: str
    expected: str
    ok: bool


def _package_folder() -> Path | None:
    spec = importlib.util.find_spec("horovod")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def built_from() -> Mapping[str, Any] | None:
    """The inputs of the installed Horovod; None if there is none or it is not ours."""
    folder = _package_folder()
    info = folder / "_paceline" / "build_info.py" if folder else None
    if info is None or not info.exists():
        return None
    namespace: dict[str, Any] = {}
    exec(info.read_text(), namespace)  # our own file; importing it would import the rest of the package
    inputs: Mapping[str, Any] = namespace["INPUTS"]
    return inputs


def findings() -> list[Finding]:
    """What was found against what is expected, without importing Horovod or a framework."""
    try:
        version = metadata.version("horovod")
    except metadata.PackageNotFoundError:
        version = "none"
    rows = [Finding(_ALWAYS[0], version, BUILT_VERSION, version == BUILT_VERSION)]
    inputs = built_from()
    if inputs is None:
        rows.append(Finding(_ALWAYS[1], "none", changes_digest(), False))
        return rows
    expected = changes_digest(inputs["left_out"])
    rows.append(Finding(_ALWAYS[1], inputs["changes"], expected, inputs["changes"] == expected))
    installed = installed_frameworks()
    for name in sorted({*installed, *inputs["frameworks"]}):
        built, here = inputs["frameworks"].get(name, "not built"), installed.get(name, "not installed")
        # A framework that left is no fault; one that came or changed is.
        rows.append(Finding(f"built for {name}", built, here, name not in installed or built == here))
    return rows


def import_findings() -> list[Finding]:
    """Import Horovod for each installed framework in a process of its own."""
    rows = []
    for name in installed_frameworks():
        code = f"import horovod.{name} as hvd; hvd.init(); assert hvd.size() == 1; hvd.shutdown()"
        try:
            result = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, timeout=IMPORT_TIMEOUT_S
            )
            words = result.stderr.strip().splitlines()[-1:] or [f"exit code {result.returncode}"]
            found = "works" if result.returncode == 0 else words[0]
        except subprocess.TimeoutExpired:
            found = f"no answer within {IMPORT_TIMEOUT_S} s"
        rows.append(Finding(f"import horovod.{name}", found, "works", found == "works"))
    return rows


def wrong_for(framework: str) -> str:
    """What is wrong with the installed Horovod for `framework` as installed; empty if nothing is."""
    wrong = [row for row in findings() if not row.ok and row.what in (*_ALWAYS, f"built for {framework}")]
    details = "; ".join(f"{row.what}: found {row.found}, expected {row.expected}" for row in wrong)
    return details and (
        f"The Horovod installed for {sys.executable} is not the one this Paceline works with ({details})."
    )
