"""Paceline's DistributedOptimizer over Gloo; its exchange and its merging are what the environment asks for."""

from __future__ import annotations

from dataclasses import replace

from paceline.examples.benchmarks.harness import merging
from paceline.examples.benchmarks.harness.assignment import Assignment
from paceline.examples.benchmarks.harness.system_horovod import connect, counters, training
from paceline.examples.benchmarks.harness.systems import Running
from paceline.examples.benchmarks.networks.network import Network


def setup(network: Network, assignment: Assignment) -> Running:
    """Connect and wrap the network's optimizer."""
    connect(assignment)
    import paceline.torch as hvd

    return Running(training(network, hvd.DistributedOptimizer), counters)


def setup_merging(network: Network, assignment: Assignment) -> Running:
    """The same for a policy that plans. It also reports how far merging is."""
    return replace(setup(network, assignment), merging=merging.of_this_rank)


def setup_merging_pipelined(network: Network, assignment: Assignment) -> Running:
    """The same where gradients are pipelined: a plan foretells synchronous steps, so its forecast is left out."""
    return replace(setup(network, assignment), merging=merging.of_this_rank_without_forecast)
