"""Properties of a cluster's host: its name, name resolution, ssh, the machine's files, and isolation."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from integration_tests.support.cluster import wait_until
from paceline.errors import UserError
from paceline.examples.benchmarks.cluster import Cluster, ClusterError
from paceline.examples.benchmarks.cluster.lifetime import namespaces, processes_in


def printed(cluster: Cluster, script: str, host: int = 0) -> str:
    """Output of a shell script on a host; it must succeed."""
    done = cluster.run(["sh", "-c", script], host=host, timeout_s=30)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("host", range(4))
def test_every_host_has_its_own_name_and_resolves_all_names_to_the_network(four_hosts: Cluster, host: int) -> None:
    script = "import socket; print(socket.gethostname(), *(socket.gethostbyname(f'host{k}') for k in range(4)))"
    done = four_hosts.run([sys.executable, "-c", script], host=host, timeout_s=30)
    assert done.stdout.split() == [f"host{host}", *four_hosts.addresses], done.stderr
    assert len(set(four_hosts.addresses)) == 4
    assert all(address.startswith("10.") for address in four_hosts.addresses)


def test_ssh_reaches_another_host_without_options_or_questions(four_hosts: Cluster) -> None:
    done = four_hosts.run(["ssh", "host3", "hostname; ssh host1 hostname; ssh host3 hostname"], timeout_s=30)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["host3", "host1", "host3"], "")


def test_ssh_by_address_and_exit_status(four_hosts: Cluster) -> None:
    assert four_hosts.run(["ssh", four_hosts.addresses[2], "exit 7"], timeout_s=30).returncode == 7


def test_processes_of_a_host_share_all_their_namespaces(four_hosts: Cluster) -> None:
    # Horovod's host hash is made of them: two commands on one host, one of them through ssh, must agree.
    script = "cd /proc/self/ns && for each in mnt net uts; do readlink $each; done"
    direct = printed(four_hosts, script, host=2).split()
    through_ssh = four_hosts.run(["ssh", "host2", script], timeout_s=30).stdout.split()
    assert direct == through_ssh
    assert not set(direct) & set(printed(four_hosts, script, host=1).split())


def test_hosts_see_the_files_the_folder_and_the_environment_of_the_caller(four_hosts: Cluster, tmp_path: Path) -> None:
    script = 'echo "$GREETING $PWD" > written-there'
    done = four_hosts.run(["sh", "-c", script], host=1, cwd=tmp_path, env={"GREETING": "from 1"}, timeout_s=30)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "written-there").read_text() == f"from 1 {tmp_path}\n"


def test_sys_shows_only_this_hosts_interfaces_and_keeps_control_groups(four_hosts: Cluster) -> None:
    links = json.loads(printed(four_hosts, "ip -j link"))
    assert sorted(printed(four_hosts, "ls /sys/class/net").split()) == sorted(link["ifname"] for link in links)
    assert sorted(printed(four_hosts, "ls /sys/fs/cgroup").split()) == sorted(
        entry.name for entry in Path("/sys/fs/cgroup").iterdir()
    )


def test_nothing_leaves_the_cluster(four_hosts: Cluster) -> None:
    network = four_hosts.addresses[0].rpartition(".")[0]
    assert printed(four_hosts, "ip -4 route show").split()[:3] == [f"{network}.0/24", "dev", "eth0"]
    # 192.0.2.0/24 is reserved for documentation; the kernel must refuse before anything is sent.
    script = (
        "import errno, socket\n"
        "try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.77', 9))\n"
        "except OSError as error: print(errno.errorcode[error.errno])\n"
        "try: socket.getaddrinfo('example.invalid', 80)\n"
        "except socket.gaierror: print('unknown name')\n"
    )
    done = four_hosts.run([sys.executable, "-c", script], timeout_s=30)
    assert done.stdout.splitlines() == ["ENETUNREACH", "unknown name"], done.stderr


def test_the_switch_carries_no_link_of_the_machine(four_hosts: Cluster) -> None:
    switch = f"{four_hosts.tag}-switch"
    argv = ["ip", "-n", switch, "-j", "link", "show", "master", "switch"]
    ports = json.loads(subprocess.run(argv, capture_output=True, timeout=20, check=True).stdout)
    assert [port["ifname"] for port in ports] == four_hosts.names
    # The other end of each cable is in a host, none in the machine's own network.
    assert {port["link_netnsid"] for port in ports} == {0, 1, 2, 3}


def test_popen_returns_the_command_itself(four_hosts: Cluster) -> None:
    process = four_hosts.popen(["sleep", "300"], host=1)
    try:
        comm = Path(f"/proc/{process.pid}/comm")
        wait_until(lambda: comm.read_text() == "sleep\n", "another process than the command")
    finally:
        process.kill()
        assert process.wait(10) == -9


def test_time_limit_kills_the_command_on_all_hosts_and_shows_its_output(four_hosts: Cluster) -> None:
    before = set(processes_in(namespaces(four_hosts.tag)))
    with pytest.raises(ClusterError) as caught:
        # As horovodrun does: in another session, and on another host.
        four_hosts.run(["sh", "-c", "setsid sleep 300 & ssh host3 'echo started; sleep 300'"], timeout_s=3)
    assert "did not end within 3 s on host0" in str(caught.value)
    assert caught.value.output == "started\n"
    # The sshd of the broken connection ends on its own.
    wait_until(lambda: set(processes_in(namespaces(four_hosts.tag))) <= before, "processes are left")


def test_two_clusters_do_not_meet(four_hosts: Cluster) -> None:
    with Cluster(hosts=2) as other:
        assert not set(other.addresses) & set(four_hosts.addresses)
        assert printed(other, "getent hosts host1").split()[0] == other.addresses[1]
        assert printed(four_hosts, "getent hosts host1").split()[0] == four_hosts.addresses[1]
        reach = f"import socket; socket.create_connection(('{other.addresses[0]}', 22), 5)"
        refused = four_hosts.run([sys.executable, "-c", reach], timeout_s=30)
        assert "Network is unreachable" in refused.stderr


def test_an_unknown_host_is_refused(four_hosts: Cluster) -> None:
    with pytest.raises(UserError, match="no host 4"):
        four_hosts.popen(["true"], host=4)


@pytest.mark.parametrize("latency", [None, "2ms"])
def test_an_idle_network_carries_nothing(latency: str | None) -> None:
    with Cluster(hosts=2, latency=latency) as cluster:
        time.sleep(2)  # discovery of IPv6 neighbours would show within a second
        assert [(count.sent_packets, count.received_packets) for count in cluster.counters()] == [(0, 0), (0, 0)]


def test_counters_count_what_is_sent_and_received(four_hosts: Cluster) -> None:
    before = four_hosts.counters()
    sent_bytes = 1_000_000
    done = four_hosts.run(["sh", "-c", f"head -c {sent_bytes} /dev/zero | ssh host2 'wc -c'"], timeout_s=30)
    assert int(done.stdout) == sent_bytes
    sent, received, idle = (
        (after.sent_bytes - old.sent_bytes, after.received_bytes - old.received_bytes)
        for old, after in ((before[k], four_hosts.counters()[k]) for k in (0, 2, 3))
    )
    assert sent_bytes < sent[0] < 1.2 * sent_bytes
    assert sent_bytes < received[1] < 1.2 * sent_bytes
    assert max(idle) < 10_000
    assert [count.host for count in before] == four_hosts.names
