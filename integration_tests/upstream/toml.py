"""TOML on every Python that we support: the standard library has a reader from 3.11 on, pytest brings one before."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def load(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())
