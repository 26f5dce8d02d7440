"""Install the built wheel into this Python, unless a suitable Horovod is installed already."""

from __future__ import annotations

import subprocess
from pathlib import Path

from paceline.errors import UserError
from paceline.horovod import carried, check, pip, shelf
from paceline.horovod.key import set_variables

INSTALL_TIMEOUT_S = 600


def is_installed(mpi: bool | None) -> bool:
    """Return True if the installed Horovod is the expected one, with the features that the variables and `mpi` request.

    It may come from another machine: its compiler is ignored.
    """
    inputs = check.built_from()
    return (
        inputs is not None
        and not inputs["left_out"]
        and all(row.ok for row in check.findings())
        and not check.lacks(inputs, set_variables(), mpi)
    )


def install(wheel: Path) -> None:
    """Install `wheel` from the cache with pip, replacing any other Horovod.

    Raises UserError with pip's message if that fails, and if the wheel in the cache was changed.
    """
    shelf.check(wheel)
    _install(wheel)


def install_carried(wheel: Path) -> None:
    """Install `wheel`, which was built on another machine (`paceline.horovod.carried`), with pip, and import it.

    Raises UserError if it does not fit this machine or cannot be imported.
    """
    carried.read(wheel)
    _install(wheel)
    wrong = [row for row in check.import_findings() if not row.ok]
    if wrong:
        raise UserError(
            f"{wheel.name} is installed, and does not work here: {wrong[0].what}: {wrong[0].found.rstrip('.')}.",
            "If a library is missing or too old, build the wheel on a machine with this one's system (glibc). "
            "`paceline doctor` checks the network and the rest.",
        )


def _install(wheel: Path) -> None:
    command = pip.command("install", "--quiet", "--no-deps", "--no-index", "--force-reinstall", str(wheel))
    result = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    if result.returncode:
        raise UserError(
            f"pip could not install {wheel}:\n  {result.stderr.strip()}",
            f"Install it by hand: {' '.join(pip.command('install', '--no-deps', '--force-reinstall', str(wheel)))}",
        )
