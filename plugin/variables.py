"""The environment of a rank; plugin and adapters read it only here.

paceline.config parses options; this module reads the other variables.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

PREFIX = "PACELINE_"
# Set where `paceline run` has started the ranks: they merge by plan unless another policy is requested.
PLANS = "_PACELINE_PLANS"


def environ() -> Mapping[str, str]:
    """Return all variables with their current values."""
    return os.environ


def given(*options: str) -> bool:
    """Return True if the variable of one of these options, or of any option, is set. Parses nothing."""
    names = {PREFIX + option.upper() for option in options} | ({PLANS} if "fusion" in options else set())
    return any(name in names or (not names and name.startswith((PREFIX, PLANS))) for name in os.environ)


def switched_on(name: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Return True if a switch of Horovod or Keras is set and neither empty nor 0."""
    return environ.get(name, "0") not in ("", "0")


def elastic() -> bool:
    """Return True if this job's ranks may change."""
    return switched_on("HOROVOD_ELASTIC")


def host() -> str:
    """Return the launcher's name of this host."""
    return os.environ.get("HOROVOD_HOSTNAME") or socket.gethostname()
