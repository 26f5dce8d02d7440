"""System programs that create a cluster: found, named with their package if missing, and run with a time limit."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from paceline.errors import UserError
from paceline.examples.benchmarks.cluster.errors import ClusterError

# Program -> Debian package.
PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
}
COMMAND_TIMEOUT_S = 20.0

# Debian's folders of administration programs, which the PATH of `su` and `sudo` may lack.
_SYSTEM_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"


def find(program: str) -> str | None:
    """Return the absolute path of a program, or None."""
    return shutil.which(program, path=os.environ.get("PATH", "") + os.pathsep + _SYSTEM_PATH)


def path_of(program: str) -> str:
    """Return the absolute path of one of PACKAGES. Raises UserError with its package."""
    path = find(program)
    if path is None:
        package = PACKAGES[program]
        raise UserError(
            f"The program {program} is missing; the emulated cluster needs it.",
            f"Install the Debian package {package}: apt-get install {package}",
        )
    return path


def check() -> None:
    """Raise UserError unless this process is root, every program is installed and namespaces may be created."""
    if os.geteuid() != 0:
        raise UserError(
            f"The emulated cluster needs root (network namespaces); this process runs as user {os.geteuid()}.",
            "Run the command as root: sudo env PATH=$PATH python -m examples.benchmarks ...",
        )
    missing = [program for program in PACKAGES if find(program) is None]
    if missing:
        packages = sorted({PACKAGES[program] for program in missing})
        raise UserError(
            f"The emulated cluster needs programs that are missing: {', '.join(missing)}.",
            f"Install the Debian packages {', '.join(packages)}: apt-get install {' '.join(packages)}",
        )
    try:
        call("unshare", "--net", "--mount", "--uts", "true")
    except ClusterError as error:
        # Root of a container does not always have the machine's privileges.
        raise UserError(
            f"This process is root, but cannot make network and mount namespaces: {error.output or error.problem}",
            "In a container, the cluster needs all privileges (docker run --privileged). In a chroot, its folder must "
            "be a mount point (mount --bind FOLDER FOLDER).",
        ) from None


def call(program: str, *arguments: str, prefix: Sequence[str] = ()) -> str:
    """Run one of PACKAGES, after `prefix`, and return its output. Raises ClusterError with the program's message."""
    argv = [*prefix, path_of(program), *arguments]
    shown = " ".join([program, *arguments])
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"The command `{shown}` did not end within {COMMAND_TIMEOUT_S:g} s.",
            "The machine may be overloaded; try again.",
        ) from None
    if done.returncode != 0:
        raise ClusterError(
            f"The command `{shown}` failed with status {done.returncode}.",
            "In a container, the cluster needs all privileges (docker run --privileged).",
            (done.stdout + done.stderr).strip(),
        )
    return done.stdout
