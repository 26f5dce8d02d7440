"""Communication without compute: all gradients handed to Horovod at once, its own merging, and a wait for all."""

from __future__ import annotations

import time

import torch

from paceline.examples.benchmarks.harness.assignment import Assignment
from paceline.examples.benchmarks.harness.system_horovod import connect, counters
from paceline.examples.benchmarks.harness.systems import Running
from paceline.examples.benchmarks.networks.network import Network

POLL_S = 0.5e-3


def setup(network: Network, assignment: Assignment) -> Running:
    """Connect; a step averages tensors of the gradients' sizes, in the order in which a backward pass yields them."""
    connect(assignment)
    import horovod.torch as hvd

    gradients = [(name, torch.zeros_like(parameter)) for name, parameter in network.named_parameters()][::-1]

    def step() -> None:
        handles = [hvd.allreduce_async_(gradient, name=f"gradient.{name}") for name, gradient in gradients]
        for handle in handles:
            # synchronize() alone would spin meanwhile and take the processor from the threads that communicate.
            while not hvd.poll(handle):
                time.sleep(POLL_S)
            hvd.synchronize(handle)

    return Running(step, counters)
