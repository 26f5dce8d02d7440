"""The network with no communication at all: the step time that an exchange without cost would reach."""

from __future__ import annotations

from paceline.examples.benchmarks.harness.assignment import Assignment
from paceline.examples.benchmarks.harness.systems import Running
from paceline.examples.benchmarks.networks.network import Network


def setup(network: Network, assignment: Assignment) -> Running:
    """Forward, backward and update."""
    optimizer = network.optimizer()

    def step() -> None:
        network.zero_grad(set_to_none=True)
        network().backward()
        optimizer.step()

    return Running(step)
