"""Mistakes in a call of `paceline run` or `paceline record`, found before anything is started."""

from __future__ import annotations

import argparse
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from paceline.config import nearest
from paceline.errors import UserError
from paceline.horovod.shims import built_with

_PYTHON = re.compile(r"python[\d.]*")
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})  # options of Python that take a value
_NO_CACHE = "--disable-cache"
_HERE = {"localhost", "127.0.0.1"}


def check(asked: argparse.Namespace, hosts: Mapping[str, int], command: Sequence[str]) -> None:
    """Raise UserError for calls that horovodrun or this host would refuse with a traceback.

    `hosts`: slots of the requested hosts.
    """
    if asked.num_proc is not None and asked.num_proc < 1:
        raise UserError(f"-np {asked.num_proc} starts no rank.", "Give the number of ranks: -np 2.")
    slots = sum(hosts.values())
    if hosts and asked.num_proc is not None and asked.num_proc > slots:
        where = f"--hostfile {asked.hostfile}" if asked.hostfile else f"-H {asked.hosts}"
        raise UserError(
            f"-np {asked.num_proc} asks for more ranks than {where} has slots, {slots}.", "Lower -np or add slots."
        )
    if asked.use_mpi and built_with.known("mpi") is False:
        raise UserError(
            "--mpi: Horovod was built without MPI.",
            "Leave it out: Gloo needs nothing. Or install MPI and run `HOROVOD_WITH_MPI=1 paceline horovod install`.",
        )
    if asked.nics and set(hosts) <= _HERE and not asked.host_discovery_script:
        from paceline.horovod.shims import elastic_hosts

        elastic_hosts.local_interfaces(asked, lambda _: set())
    if not (hosts or asked.host_discovery_script):
        _check_command(command)  # other hosts may have other files


def _check_command(command: Sequence[str]) -> None:
    program = command[0]
    if shutil.which(program) is None:
        if Path(program).is_file():
            raise UserError(
                f"{program} cannot be executed.", f"Put python in front of it: python {program}, or make it executable."
            )
        raise UserError(f"There is no program {program}.", "The command of the ranks comes last: python train.py.")
    script = _script(command)
    if script is not None and not Path(script).exists():
        folder = Path(script).absolute().parent
        near = [path.name for path in folder.glob("*.py")] if folder.is_dir() else []
        raise UserError(
            f"The script {script} does not exist.", nearest(Path(script).name, near, f"Looked in {folder}.")
        )


def _script(command: Sequence[str]) -> str | None:
    """Return the script that Python runs; None for another program, code (-c) or a module (-m)."""
    if not _PYTHON.fullmatch(Path(command[0]).name):
        return None
    words = iter(command[1:])
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif word.startswith("-"):
            if word[:2] in ("-c", "-m") or word == "-":
                return None
        else:
            return word
    return None


def cache_arguments(horovodrun_arguments: Sequence[str]) -> list[str]:
    """Return the flag that disables horovodrun's cache, if the home folder is not writable, as in many containers."""
    cache = Path("~").expanduser() / ".horovod"
    usable = os.access(cache if cache.exists() else cache.parent, os.W_OK)
    return [] if usable or _NO_CACHE in horovodrun_arguments else [_NO_CACHE]
