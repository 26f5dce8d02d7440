"""The network with no communication at all: the step time that an exchange without cost would reach."""

from __future__ import annotations

from paceline.launch.benchmarks.assignment import Assignment
from paceline.launch.benchmarks.network import Network
from paceline.launch.benchmarks.systems import Running


def setup(network: Network, assignment: Assignment) -> Running:
    """Forward, backward and update."""
    optimizer = network.optimizer()

    def step() -> None:
        network.zero_grad(set_to_none=True)
        network().backward()
        optimizer.step()

    return Running(step)
