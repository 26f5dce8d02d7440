"""Load Horovod's module for a framework, or say clearly what is missing."""

from __future__ import annotations

import importlib
from typing import Any

from paceline import config
from paceline.errors import UserError
from paceline.host.check import REMEDY, wrong_for


class HostMissing(UserError, ImportError):
    """Horovod is not installed, lacks a framework, or is not the one that this Paceline builds."""


def require(framework: str) -> None:
    """Raise HostMissing unless the installed Horovod is the one expected, or the option check_host is off."""
    wrong = wrong_for(framework) if config.read().check_host else ""
    if wrong:
        raise HostMissing(wrong, REMEDY)


def load(framework: str) -> Any:
    """The module horovod.<framework> ("torch" or "tensorflow").

    Checks first: a library built for another version of the framework fails to load with words that help nobody.
    Raises HostMissing.
    """
    require(framework)
    try:
        module = importlib.import_module(f"horovod.{framework}")
    except ImportError as error:
        raise HostMissing(f"horovod.{framework} cannot be imported: {error}", REMEDY) from error
    if not hasattr(module, "init"):
        raise HostMissing(f"Horovod is installed without {framework}.", REMEDY)
    return module
