"""The cluster's network: one namespace per host, and one for the switch that joins them.

The switch is a bridge in a namespace of its own. If the network has a latency, it is a process there that holds frames
(switch.py). Thus no link, address or route of the cluster ever exists in the machine's network: nothing can leave, the
machine's firewalls do not apply, and address ranges cannot collide. Host k's cable is a veth pair: `eth0` in the host,
`host<k>` at the switch. Each end sends through a token bucket, which makes a full-duplex link of the given rate.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.examples.benchmarks.cluster import tools
from paceline.examples.benchmarks.cluster.lifetime import NETNS, state_dir
from paceline.examples.benchmarks.cluster.rates import TokenBucket
from paceline.examples.benchmarks.cluster.switched import Switched

INTERFACE = "eth0"
SWITCH = "switch"


@dataclass(frozen=True)
class HostCounters:
    """Traffic of one host's link since it was made, Ethernet headers included, as the host's kernel counts.

    A packet here is one buffer that the kernel passes to the link: up to 64 KiB of TCP payload, not a frame.
    """

    host: str
    sent_bytes: int
    sent_packets: int
    received_bytes: int
    received_packets: int


class Network:
    """Hosts `names` joined by one switch; host k's link starts with `rates_bit_s[k]`, None for no limit.

    The switch holds each frame for `latency_ns`.
    """

    def __init__(self, tag: str, names: Sequence[str], rates_bit_s: Sequence[int | None], latency_ns: int = 0) -> None:
        self._tag = tag
        self.names = list(names)
        # Distinct per cluster to help readers of logs; isolation does not depend on it.
        pid, _, number = tag.split("-")[1:]
        spread = (int(pid) * 31 + int(number)) & 0xFFFF
        self._prefix = f"10.{spread >> 8}.{spread & 0xFF}"
        self.addresses = [f"{self._prefix}.{k + 1}" for k in range(len(names))]
        self._buckets: list[TokenBucket | None] = [None] * len(names)
        self._make(rates_bit_s, bridge=latency_ns == 0)
        self._switched: Switched | None = None
        if latency_ns:
            self._switched = Switched(self._entered(SWITCH), self.names, latency_ns, state_dir(tag) / "switch.log")

    def namespace(self, name: str) -> str:
        """Return the name of a host (or the switch) for `ip netns`."""
        return f"{self._tag}-{name}"

    def enter(self, host: int) -> list[str]:
        """Return the command prefix that runs a program in the network of a host."""
        return self._entered(self.names[host])

    def _entered(self, name: str) -> list[str]:
        return [tools.path_of("nsenter"), f"--net={NETNS / self.namespace(name)}", "--"]

    def _ip(self, name: str, command: str) -> str:
        return tools.call("ip", "-n", self.namespace(name), *command.split())

    def _make(self, rates_bit_s: Sequence[int | None], bridge: bool) -> None:
        tools.call("ip", "netns", "add", self.namespace(SWITCH))
        if bridge:
            self._ip(SWITCH, f"link add {SWITCH} type bridge stp_state 0 forward_delay 0 mcast_snooping 0")
        # The network is IPv4 only: discovery of IPv6 link-local addresses would add packets to the counters. Hosts keep
        # IPv6 on loopback.
        quiet = ""
        if Path("/proc/sys/net/ipv6").exists():
            quiet = "addrgenmode none"
            switch_off = "for each in all default; do echo 1 > /proc/sys/net/ipv6/conf/$each/disable_ipv6; done"
            tools.call("nsenter", f"--net={NETNS / self.namespace(SWITCH)}", "sh", "-ec", switch_off)
        master = f"master {SWITCH} " if bridge else ""
        if bridge:
            self._ip(SWITCH, f"link set {SWITCH} up")
        for host, (name, address, rate_bit_s) in enumerate(zip(self.names, self.addresses, rates_bit_s, strict=True)):
            namespace = self.namespace(name)
            tools.call("ip", "netns", "add", namespace)
            self._ip(SWITCH, f"link add {name} type veth peer name {INTERFACE} netns {namespace}")
            self._ip(SWITCH, f"link set {name} {master}up")
            self._ip(name, "link set lo up")
            self._ip(name, f"address add {address}/24 broadcast + dev {INTERFACE}")
            self._ip(name, f"link set {INTERFACE} {quiet} up")
            self.set_rate(host, rate_bit_s)

    def set_rate(self, host: int, rate_bit_s: int | None) -> None:
        """Limit both directions of a host's link from now on; None removes the limit."""
        name = self.names[host]
        ends = [(self.namespace(name), INTERFACE), (self.namespace(SWITCH), name)]
        if rate_bit_s is not None:
            self._buckets[host] = bucket = TokenBucket.for_rate(rate_bit_s, self._buckets[host])
            parameters = f"rate {bucket.rate_bit_s}bit burst {bucket.burst_bytes}b limit {bucket.queue_bytes}b"
            for namespace, device in ends:
                tools.call("tc", *f"-n {namespace} qdisc replace dev {device} root tbf {parameters}".split())
        elif self._buckets[host] is not None:
            for namespace, device in ends:
                tools.call("tc", *f"-n {namespace} qdisc delete dev {device} root".split())
            self._buckets[host] = None

    def check(self) -> None:
        """Raise ClusterError if hosts no longer reach each other."""
        if self._switched is not None:
            self._switched.check()

    def stop(self) -> str | None:
        """Stop the switch. Returns a warning if it did not carry all frames, else None."""
        if self._switched is None:
            return None
        dropped = self._switched.stop()
        if dropped is None:
            return "The switch of the emulated cluster ended before the cluster: what was measured is not its network."
        if dropped:
            return f"The switch of the emulated cluster fell behind and dropped {dropped} frames: lower the rate."
        return None

    def counters(self) -> list[HostCounters]:
        """Return the traffic of each host's link, in the order of hosts."""
        result = []
        for name in self.names:
            statistics = json.loads(self._ip(name, f"-s -j link show dev {INTERFACE}"))[0]["stats64"]
            sent, received = statistics["tx"], statistics["rx"]
            result.append(HostCounters(name, sent["bytes"], sent["packets"], received["bytes"], received["packets"]))
        return result


def hosts_file(names: Sequence[str], addresses: Sequence[str]) -> str:
    """Text of /etc/hosts in every host. A host's own name is its address on the network, never loopback."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    return "\n".join([*lines, *(f"{address} {name}" for name, address in zip(names, addresses, strict=True))]) + "\n"
