"""Load Horovod's module for a framework, or report clearly what is missing."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

from paceline import config
from paceline.errors import UserError
from paceline.exchange.joins import meet_before_joins
from paceline.extras import how_to_install
from paceline.horovod.check import REMEDY, wrong_for


class HorovodMissing(UserError, ImportError):
    """Horovod is not installed, lacks a framework, or is not the one that this Paceline builds."""


def require(framework: str) -> None:
    """Raise HorovodMissing unless the installed Horovod is the one expected, or the option check_horovod is off."""
    wrong = wrong_for(framework) if config.read().check_horovod else ""
    if wrong:
        raise HorovodMissing(wrong, REMEDY)


def load(framework: str) -> Any:
    """Import and return horovod.<framework> ("torch" or "tensorflow"; `framework` is also its import name).

    Checks the installation first, because a library built for another version of the framework fails with an unhelpful
    message. Raises HorovodMissing.
    """
    if importlib.util.find_spec(framework) is None:
        raise HorovodMissing(
            f"{framework} is not installed for {sys.executable}.",
            f"Run `{how_to_install(framework)}`, then `paceline horovod install`.",
        )
    require(framework)
    try:
        module = importlib.import_module(f"horovod.{framework}")
    except ImportError as error:
        raise HorovodMissing(f"horovod.{framework} cannot be imported: {error}", REMEDY) from error
    if not hasattr(module, "init"):
        raise HorovodMissing(f"Horovod is installed without {framework}.", REMEDY)
    meet_before_joins(framework)
    return module
