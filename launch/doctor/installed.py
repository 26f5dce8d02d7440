"""Checks of Python, the frameworks, and the Horovod built for them."""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Iterator
from importlib import metadata

from paceline import versions
from paceline.extras import how_to_install
from paceline.horovod import check
from paceline.horovod.key import installed_frameworks
from paceline.launch.doctor.findings import Finding, error, ok, warning

# The most informative inputs of the build.
_REPORTED_INPUTS = ("python", "compiler", "platform")


def python() -> Iterator[Finding]:
    """Report the interpreter that ranks use."""
    yield ok("Python", f"{platform.python_version()} at {sys.executable}")


def frameworks() -> Iterator[Finding]:
    """Report the installed frameworks."""
    found = installed_frameworks()
    for name, version in sorted(found.items()):
        yield ok(name, version)
    if not found:
        yield error("frameworks", "neither PyTorch nor TensorFlow is installed", how_to_install("torch"))


def tested() -> Iterator[Finding]:
    """Report supported and tested versions of Python and the frameworks."""
    rows = [(versions.PYTHON, platform.python_version(), "make an environment with another Python")]
    for name, version in sorted(_installed_versions().items()):
        one = versions.FRAMEWORKS[name]
        rows.append((one, version, f"pip install {shlex.quote(versions.distribution(name) + one.specifier)}"))
    within = []
    for one, version, how in rows:
        if not one.is_supported(version):
            found = f"{version} is outside the supported releases, {one.span}"
            yield warning(f"{one.title} version", found, f"If something fails, {how} ({one.span} is supported).")
        elif one.is_tested(version):
            within.append(f"{one.title} {version} (tested)")
        else:
            within.append(f"{one.title} {version} (supported; tested are {', '.join(one.tested)})")
    if within:
        yield ok("versions", ", ".join(within))


def _installed_versions() -> dict[str, str]:
    """Versions of the frameworks, including Keras, by import name; read without importing them."""
    found = installed_frameworks()
    try:
        found["keras"] = metadata.version("keras")
    except metadata.PackageNotFoundError:
        pass
    return found


def horovod() -> Iterator[Finding]:
    """Check that Horovod has our hooks and fits the installed frameworks; report its build options."""
    for row in (*check.findings(), *check.gpu_findings()):
        if row.ok:
            yield ok(row.what, row.found)
        else:
            yield error(row.what, f"{row.found}; expected {row.expected}", check.REMEDY)
    inputs = check.built_from()
    if inputs is not None:
        built_with = [f"MPI {inputs['mpi']}" if inputs["mpi"] else "Gloo, no MPI"]
        built_with += [f"{name} {value}" for name, value in inputs.get("found", {}).items()]
        built_with += [f"{name}={value}" for name, value in sorted(inputs["environment"].items())]
        yield ok("Horovod built with", ", ".join([*built_with, *(str(inputs[name]) for name in _REPORTED_INPUTS)]))


def is_usable() -> bool:
    """True if ranks can be started for a trial."""
    return bool(installed_frameworks()) and all(row.ok for row in check.findings())
