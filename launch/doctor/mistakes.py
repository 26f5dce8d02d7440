"""Variables without effect, or that contradict each other."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from paceline import config
from paceline.errors import UserError
from paceline.horovod.key import BUILD_VARIABLES
from paceline.launch.doctor.findings import Finding, error, ok, warning
from paceline.launch.rank import identity
from paceline.registry.policies import THRESHOLD

_VARIABLE = re.compile(rb"HOROVOD_[A-Z][A-Z0-9_]+")
_LIBRARIES = (".py", ".so")
_NO = ("", "0", "false", "no")


def known_to_horovod() -> set[str]:
    """Names of all variables in the installed Horovod and its build; empty without Horovod."""
    spec = importlib.util.find_spec("horovod")
    if spec is None or not spec.submodule_search_locations:
        return set()
    found = set(BUILD_VARIABLES)
    for folder in spec.submodule_search_locations:
        for path in Path(folder).rglob("*"):
            if path.suffix in _LIBRARIES:
                found |= {name.decode() for name in _VARIABLE.findall(path.read_bytes())}
    return found


def variables(environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Check for HOROVOD_* variables that Horovod does not read; Horovod itself does not report them."""
    known = known_to_horovod()
    given = sorted(name for name in environ if name.startswith("HOROVOD_"))
    unknown = [name for name in given if known and name not in known]
    for name in unknown:
        yield warning(
            name,
            f"set to {environ[name]!r}, but Horovod reads no variable of that name",
            config.nearest(name, sorted(known), "Unset it; Horovod's documentation lists those that there are."),
        )
    if not unknown:
        yield ok("HOROVOD_* variables", ", ".join(given) or "none is set")


def contradictions(environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Check for variables that decide the same thing."""
    policy = config.read(environ=environ).fusion
    if environ.get("HOROVOD_AUTOTUNE", "").lower() not in _NO and policy != THRESHOLD:
        yield warning(
            "HOROVOD_AUTOTUNE",
            f"Horovod's search for a threshold is on beside PACELINE_FUSION={policy}, which merges by plan",
            "Unset HOROVOD_AUTOTUNE: it changes cycle time and threshold while the plan's measurements are taken.",
        )
    if environ.get("HOROVOD_CONTROLLER") == "mpi" and "HOROVOD_RANK" not in environ:
        yield warning(
            "HOROVOD_CONTROLLER",
            "set to mpi: only ranks that mpirun started can find each other",
            "Unset it, or start ranks by mpirun; `paceline rank` and horovodrun with Gloo set it themselves.",
        )


def scheduler(environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Report the scheduler of this task, if it is one, as `paceline rank` would find it."""
    try:
        who = identity.find(environ, identity.Given())
    except UserError as refused:
        if identity.is_task(environ):
            yield error("scheduler", refused.problem, refused.remedy)
        else:
            yield ok("scheduler", "this is not a task of one; `srun paceline doctor` looks from inside a job")
        return
    where = " or ".join(who.hosts)
    yield ok("scheduler", f"{who.source}: rank {who.rank} of {who.size}, rank 0 on {where}, port {who.port}")
