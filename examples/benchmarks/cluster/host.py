"""One emulated host: a host name, names of the other hosts, /sys and ssh, on the machine's file system.

A host is a network namespace (see network.py) plus a mount and a UTS namespace, kept alive by two idle processes:
`sleep` and sshd. Every command on the host enters the same three namespaces, because Horovod identifies hosts by them.
"""

from __future__ import annotations

import os
import pwd
import select
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.examples.benchmarks.cluster import tools
from paceline.examples.benchmarks.cluster.errors import ClusterError
from paceline.examples.benchmarks.cluster.lifetime import remember_created
from paceline.examples.benchmarks.cluster.ssh import PAM_SERVICE, write_server_config

START_TIMEOUT_S = 30.0

_NSSWITCH = Path("/etc/nsswitch.conf")


def write_common_files(tag: str, state: Path, hosts_text: str) -> dict[Path, Path]:
    """Write into `state` the files that hosts see instead of the machine's. Return target -> file or folder to show."""
    shown: dict[Path, Path] = {}

    def show(target: Path, name: str, text: str | None) -> None:
        path = state / name
        if text is None:
            path.mkdir(mode=0o700)
        else:
            path.write_text(text)
            path.chmod(0o644)
        shown[target] = path

    show(Path("/etc/hosts"), "hosts", hosts_text)
    # Names must be resolved from that file only: resolvers reached through a socket in the file system would answer
    # from outside the cluster.
    if _NSSWITCH.exists():
        lines = [line for line in _NSSWITCH.read_text().splitlines() if not line.strip().startswith("hosts:")]
        show(_NSSWITCH, "nsswitch.conf", "\n".join([*lines, "hosts: files"]) + "\n")
    for cache in (Path("/run/nscd"), Path("/var/run/nscd")):
        if cache.is_dir() and not cache.is_symlink():
            show(cache, f"no-{cache.parts[1]}-nscd", None)
    shown[Path("/etc/ssh/ssh_config")] = state / "ssh_config"
    if PAM_SERVICE.exists():
        shown[PAM_SERVICE] = state / "pam"
    # The user's ssh configuration overrides the system's and may redirect `host0` anywhere.
    own_ssh = Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".ssh"
    if own_ssh.is_dir():
        show(own_ssh, "no-ssh", None)
    # horovodrun caches there, for an hour and by name, which hosts it reached. The emulated hosts are different ones.
    horovod_cache = Path.home() / ".horovod"
    if not horovod_cache.exists():
        horovod_cache.mkdir(parents=True)
        remember_created(tag, horovod_cache)
    show(horovod_cache, "horovod-cache", None)
    return shown


class Host:
    """A running host. `enter_network` is the command prefix that enters its network namespace."""

    def __init__(
        self, name: str, address: str, state: Path, enter_network: Sequence[str], shown: Mapping[Path, Path]
    ) -> None:
        self.name = name
        self._enter_network = list(enter_network)
        self._dir = state / name
        self._dir.mkdir(mode=0o700)
        self._holder = self._hold(shown)
        self._sshd = self._serve_ssh(write_server_config(state, self._dir, address))

    def _hold(self, shown: Mapping[Path, Path]) -> subprocess.Popen[bytes]:
        # A new /sys shows the interfaces of this host; the machine's control groups are mounted into it again.
        sys_dir = shlex.quote(str(self._dir / "sys"))
        lines = [
            f"echo {self.name} > /proc/sys/kernel/hostname",
            f"mkdir {sys_dir}",
            f"mount -t sysfs sysfs {sys_dir}",
            f"if [ -d /sys/fs/cgroup ]; then mount --rbind /sys/fs/cgroup {sys_dir}/fs/cgroup; fi",
            f"mount --move {sys_dir} /sys",
            *(f"mount --bind {shlex.quote(str(path))} {shlex.quote(str(on))}" for on, path in shown.items()),
            "echo ready",
            "exec sleep infinity >&2",
        ]
        # Not private: an unmount on the machine must take effect here too, or other clusters' namespaces would remain.
        unshare = [tools.path_of("unshare"), "--mount", "--uts", "--propagation", "slave", "--"]
        log = self._dir / "setup.log"
        with log.open("wb") as errors:
            holder = subprocess.Popen(
                [*self._enter_network, *unshare, "sh", "-euc", "\n".join(lines)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd="/",
                start_new_session=True,
            )
        assert holder.stdout is not None
        with holder.stdout as output:
            ready = select.select([output], [], [], START_TIMEOUT_S)[0] and output.readline() == b"ready\n"
        if not ready:
            raise ClusterError(
                f"The namespaces of {self.name} could not be set up.",
                "In a container, the cluster needs all privileges (docker run --privileged).",
                log.read_text(errors="replace"),
            )
        return holder

    def _serve_ssh(self, config: Path) -> subprocess.Popen[bytes]:
        log, pid_file = self._dir / "sshd.log", self._dir / "sshd.pid"
        argv = [tools.path_of("sshd"), "-D", "-f", str(config), "-E", str(log)]
        sshd = subprocess.Popen(
            self.command(argv, "/"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not pid_file.exists():
            if sshd.poll() is not None or time.monotonic() > deadline:
                raise ClusterError(
                    f"sshd did not start on {self.name}.",
                    f"`sshd -t -f {config}` checks its configuration.",
                    log.read_text(errors="replace") if log.exists() else "",
                )
            time.sleep(0.01)
        return sshd

    def command(self, argv: Sequence[str | os.PathLike[str]], cwd: str) -> list[str | os.PathLike[str]]:
        """Return `argv` as a command that enters this host and starts in the folder `cwd`."""
        if self._holder.poll() is not None:
            raise ClusterError(f"{self.name} is gone: the process that held it was killed.", "Make a new cluster.")
        held = f"/proc/{self._holder.pid}"
        # Entering a mount namespace changes to its root, which in a chroot differs from ours.
        place = [f"--root={held}/root", f"--wd={held}/root"]
        enter = [*self._enter_network[:-1], f"--mount={held}/ns/mnt", f"--uts={held}/ns/uts", *place, "--"]
        return [*enter, "sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", cwd, *argv]

    def popen(
        self, argv: Sequence[str | os.PathLike[str]], env: Mapping[str, str], **kwargs: Any
    ) -> subprocess.Popen[Any]:
        """Start `argv` in this host; `kwargs` are subprocess.Popen's."""
        cwd = str(Path(kwargs.pop("cwd", None) or Path.cwd()).absolute())
        return subprocess.Popen(self.command(argv, cwd), env=dict(env), **kwargs)

    def reap(self, timeout_s: float) -> None:
        """Collect the exit status of the two processes, which the removal of the cluster has killed."""
        for process in (self._holder, self._sshd):
            process.wait(timeout_s)
