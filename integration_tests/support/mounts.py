"""Commands in a separate mount namespace; without root in a user namespace."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

_NAMESPACE = ("unshare", "--mount") if os.getuid() == 0 else ("unshare", "--mount", "--user", "--map-root-user")


@functools.cache
def _can_mount() -> bool:
    command = [*_NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(command, capture_output=True, timeout=60).returncode == 0


def run_mounted(
    mount: Sequence[str], command: Sequence[str | Path], env: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run `command` after `mount` with these arguments. Skips the test if this process cannot mount."""
    if not _can_mount():
        pytest.skip("this process cannot make a mount namespace")
    script = 'words=$1; shift; eval "mount $words" && exec "$@"'
    return subprocess.run(
        [*_NAMESPACE, "sh", "-c", script, "sh", " ".join(mount), *command],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
