"""Install the built wheel into this Python, unless that very build is installed already."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from paceline.errors import UserError
from paceline.horovod import shelf

INSTALL_TIMEOUT_S = 600


def install(wheel: Path) -> None:
    """pip-install `wheel`, replacing any other Horovod.

    Raises UserError with pip's words if that fails, and if the wheel is not as it was put into the cache.
    """
    shelf.check(wheel)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", str(wheel)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    if result.returncode:
        raise UserError(
            f"pip could not install {wheel}:\n  {result.stderr.strip()}",
            f"Install it by hand: {sys.executable} -m pip install --no-deps --force-reinstall {wheel}",
        )
