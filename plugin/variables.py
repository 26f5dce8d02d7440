"""The environment of a rank: the one place of the plugin and the adapters that reads it.

Options are parsed from it by paceline.config; what else a rank must know of it is asked here.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

PREFIX = "PACELINE_"
# There where `paceline run` has started the ranks, and merges by plan unless something else is asked for.
PLANS = "_PACELINE_PLANS"


def environ() -> Mapping[str, str]:
    """All variables, as they are now."""
    return os.environ


def given(*options: str) -> bool:
    """Whether the variable of one of these options is there, or of any option; parses nothing."""
    names = {PREFIX + option.upper() for option in options} | ({PLANS} if "fusion" in options else set())
    return any(name in names or (not names and name.startswith((PREFIX, PLANS))) for name in os.environ)


def switched_on(name: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a switch of Horovod or Keras is there and neither empty nor 0."""
    return environ.get(name, "0") not in ("", "0")


def elastic() -> bool:
    """Whether this job's ranks may change."""
    return switched_on("HOROVOD_ELASTIC")


def host() -> str:
    """What the launcher calls this host."""
    return os.environ.get("HOROVOD_HOSTNAME") or socket.gethostname()
