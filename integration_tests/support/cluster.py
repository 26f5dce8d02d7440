"""What tests know of a running emulated cluster beside what its users see."""

from __future__ import annotations

from paceline.examples.benchmarks.cluster.lifetime import NETNS, processes_in


def processes_at_switch(tag: str) -> list[int]:
    """The pids in the network namespace of a cluster's switch: one if it is a process, none if it is a bridge."""
    return processes_in([NETNS / f"{tag}-switch"])
