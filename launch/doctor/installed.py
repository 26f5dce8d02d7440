"""Python, the frameworks, and the Horovod that is built for them."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator

from paceline.extras import how_to_install
from paceline.horovod import check
from paceline.horovod.key import installed_frameworks
from paceline.launch.doctor.findings import Finding, error, ok

# Of what went into the build, what says most about it.
_TOLD = ("python", "compiler", "platform")


def python() -> Iterator[Finding]:
    """The interpreter that ranks are started with."""
    yield ok("Python", f"{platform.python_version()} at {sys.executable}")


def frameworks() -> Iterator[Finding]:
    """The frameworks that are installed."""
    found = installed_frameworks()
    for name, version in sorted(found.items()):
        yield ok(name, version)
    if not found:
        yield error("frameworks", "neither PyTorch nor TensorFlow is installed", how_to_install("torch"))


def horovod() -> Iterator[Finding]:
    """Whether Horovod is ours and built for what is installed, and with what."""
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
        yield ok("Horovod built with", ", ".join([*built_with, *(str(inputs[name]) for name in _TOLD)]))


def is_usable() -> bool:
    """Whether ranks can be started to try something."""
    return bool(installed_frameworks()) and all(row.ok for row in check.findings())
