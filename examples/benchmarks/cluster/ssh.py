"""Keys and configuration files of a cluster's ssh, created for this cluster only and removed with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paceline.examples.benchmarks.cluster import tools
from paceline.examples.benchmarks.cluster.errors import ClusterError

# Marks the processes of one `Cluster.run`; ssh forwards it to the other hosts.
RUN_VARIABLE = "EMULATED_CLUSTER_RUN"
PAM_SERVICE = Path("/etc/pam.d/sshd")

_PAM = """\
auth required pam_deny.so
account required pam_permit.so
session required pam_permit.so
password required pam_deny.so
"""


def write_common_files(state: Path, addresses: Sequence[str]) -> None:
    """Write keys, the client's configuration and sshd's PAM stack, shared by all hosts, into the folder `state`."""
    for key in ("user_key", "host_key"):
        tools.call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "emulated-cluster", "-f", str(state / key))
    _write(state / "authorized_keys", (state / "user_key.pub").read_text())
    network = addresses[0].rpartition(".")[0]
    _write(state / "known_hosts", f"host*,{network}.*,localhost,127.0.0.1 {(state / 'host_key.pub').read_text()}")
    _write(
        state / "ssh_config",
        f"""\
Host *
    IdentityFile {state}/user_key
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile {state}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    UpdateHostKeys no
    SendEnv {RUN_VARIABLE}
    LogLevel ERROR
""",
    )
    # Sessions must not reach the machine's login manager, and root's account may be locked (it is on Ubuntu).
    _write(state / "pam", _PAM)


def write_server_config(state: Path, host_dir: Path, address: str) -> Path:
    """Write the configuration of a host's sshd; return its path. sshd writes `host_dir`/sshd.pid once it listens."""
    config = host_dir / "sshd_config"
    _write(
        config,
        f"""\
Port 22
ListenAddress {address}
ListenAddress 127.0.0.1
HostKey {state}/host_key
AuthorizedKeysFile {state}/authorized_keys
PidFile {host_dir}/sshd.pid
PermitRootLogin prohibit-password
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM {"yes" if PAM_SERVICE.exists() else "no"}
UseDNS no
StrictModes yes
AcceptEnv {RUN_VARIABLE}
MaxStartups 200
MaxSessions 200
PrintMotd no
PrintLastLog no
Subsystem sftp internal-sftp
LogLevel ERROR
""",
    )
    return config


def make_privilege_separation_dir() -> None:
    """Create /run/sshd, which sshd needs and Debian creates only when its service starts. As on Debian, it stays."""
    directory = Path("/run/sshd")
    try:
        directory.mkdir(mode=0o755, exist_ok=True)
    except OSError as error:
        raise ClusterError(f"The folder {directory} cannot be made: {error}.", "Make it as root, mode 0755.") from None


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)
