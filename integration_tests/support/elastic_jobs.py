"""Elastic jobs on names of this machine: a file of hosts, and the launcher's words."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def launcher(folder: Path, hosts: Sequence[str], least: int, most: int, begin: int) -> list[str]:
    """Write the hosts to `folder`, and return the words that start a job of `least` to `most` ranks there.

    The job begins with `begin` ranks. A new file `hosts` in `folder` changes its ranks.
    """
    find = folder / "find.sh"
    (folder / "hosts").write_text("\n".join(hosts) + "\n")
    find.write_text(f"#!/bin/sh\ncat {folder / 'hosts'}\n")
    find.chmod(0o755)
    words = [sys.executable, "-m", "horovod.runner.launch", "-np", str(begin)]
    words += ["--min-np", str(least), "--max-np", str(most)]
    return [*words, "--host-discovery-script", str(find), "--network-interfaces", "lo"]
