"""Compare the installed Horovod with the one this Paceline expects for the installed frameworks."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from paceline.horovod import gpu
from paceline.horovod.key import changes_digest, installed_frameworks
from paceline.horovod.release import BUILT_VERSION

REMEDY = "Run `paceline horovod install` (minutes when it must build, seconds when the wheel is in the cache)."
IMPORT_TIMEOUT_S = 180

# File with the inputs of a Horovod that Paceline built.
BUILD_INFO = "_paceline/build_info.py"
_OF_MPI = ("HOROVOD_WITH_MPI", "HOROVOD_WITHOUT_MPI")

# Findings that concern every framework.
_ALWAYS = ("Horovod", "hooks and patches")


@dataclass(frozen=True)
class Finding:
    """Result of one check: `what` was checked, and the found and expected values."""

    what: str
    found: str
    expected: str
    ok: bool


def _package_folder() -> Path | None:
    spec = importlib.util.find_spec("horovod")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def inputs_in(build_info: str) -> dict[str, Any]:
    """Return the inputs in the text of a built Horovod's build_info.py."""
    inputs: dict[str, Any] = ast.literal_eval(build_info.partition("INPUTS = ")[2])
    return inputs


def built_from() -> Mapping[str, Any] | None:
    """Return the inputs of the installed Horovod; None if there is none or Paceline did not build it."""
    folder = _package_folder()
    info = folder / BUILD_INFO if folder else None
    return inputs_in(info.read_text()) if info is not None and info.exists() else None


def findings() -> list[Finding]:
    """Check the installed Horovod without importing it or a framework."""
    try:
        version = metadata.version("horovod")
    except metadata.PackageNotFoundError:
        version = "none"
    return findings_of(version, built_from())


def findings_of(version: str, inputs: Mapping[str, Any] | None) -> list[Finding]:
    """Check a Horovod of this version that was built from `inputs` (None: not by Paceline), as `findings`."""
    rows = [Finding(_ALWAYS[0], version, BUILT_VERSION, version == BUILT_VERSION)]
    if inputs is None:
        rows.append(Finding(_ALWAYS[1], "none", changes_digest(), False))
        return rows
    expected = changes_digest(inputs["left_out"])
    rows.append(Finding(_ALWAYS[1], inputs["changes"], expected, inputs["changes"] == expected))
    installed = installed_frameworks()
    for name in sorted({*installed, *inputs["frameworks"]}):
        built, here = inputs["frameworks"].get(name, "not built"), installed.get(name, "not installed")
        # A framework that was removed is not a fault; one that was added or changed is.
        rows.append(Finding(f"built for {name}", built, here, name not in installed or built == here))
    return rows


def gpu_findings() -> list[Finding]:
    """Describe the handling of GPU tensors, by framework; [] for a Horovod that Paceline did not build."""
    inputs = built_from()
    if inputs is None:
        return []
    return [
        Finding(f"GPU tensors in {name}", gpu.gradients(name, version, inputs), "any", True)
        for name, version in sorted(installed_frameworks().items())
        if name in inputs["frameworks"]
    ]


def lacks(inputs: Mapping[str, Any], asked: Mapping[str, str], mpi: bool | None) -> list[str]:
    """Return the requested features that a Horovod built from `inputs` lacks.

    Args:
        inputs: see `paceline.horovod.key.build_inputs`.
        asked: variables of Horovod's build that are set now, by name; an unset one requests nothing.
        mpi: with MPI or without; None requests neither.
    """
    differ = [
        f"{name}={value}"
        for name, value in asked.items()
        if name not in _OF_MPI and inputs["environment"].get(name) != value
    ]
    if mpi is not None and bool(inputs["mpi"]) != mpi:
        differ.append("with MPI" if mpi else "without MPI")
    return differ


def import_findings() -> list[Finding]:
    """Import Horovod for each installed framework in a separate process."""
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
    """Describe the faults of the installed Horovod for `framework` as installed; "" if there are none."""
    wrong = [row for row in findings() if not row.ok and row.what in (*_ALWAYS, f"built for {framework}")]
    details = "; ".join(f"{row.what}: found {row.found}, expected {row.expected}" for row in wrong)
    return details and (
        f"The Horovod installed for {sys.executable} is not the one this Paceline works with ({details})."
    )
