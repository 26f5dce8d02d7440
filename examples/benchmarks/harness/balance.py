"""The rate of links at which communication takes a given multiple of the time of compute.

In a ring every rank sends 2 (p - 1) / p times the gradients' bytes to the next one. Ranks of one host are neighbours in
it, so this is also what each host's link carries in each direction. Headers, start-ups and coordination are left out:
what communication really takes is measured beside the systems (`communication` in systems.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paceline.examples.benchmarks.harness import systems
from paceline.examples.benchmarks.harness.hosts import Loopback
from paceline.examples.benchmarks.harness.turns import Limits, compare
from paceline.examples.benchmarks.networks.models import Model

# What four ranks on two processor cores drive without the processor setting the pace.
CLEAN_BIT_S = 200e6
DIGITS = 3
PROBE = Limits(time_s=30.0, turns=5)


@dataclass(frozen=True)
class Balance:
    """Links that carry `link_bytes` per step and direction in `share` times `compute_s`."""

    share: float
    compute_s: float
    link_bytes: float

    @property
    def bit_s(self) -> float:
        """The rate in bits per second, to three digits."""
        return float(f"{8 * self.link_bytes / (self.share * self.compute_s):.{DIGITS}g}")

    @property
    def rate(self) -> str:
        """The rate as links take it: "54.5mbit"."""
        return f"{self.bit_s / 1e6:.12g}mbit"

    @property
    def clean(self) -> bool:
        """Whether the rate is low enough for the links, not the processor, to decide how long communication takes."""
        return self.bit_s <= CLEAN_BIT_S


def find(model: Model, ranks: int, share: float, tell: Callable[[str], None] = lambda text: None) -> Balance:
    """The balance of a model on `ranks` ranks.

    The compute time of layers that sleep is known; that of a network that computes is measured with all ranks at work
    on this machine, which they share.
    """
    compute_s = model.compute_ms / 1e3
    if model.computes:
        alone = systems.find(systems.ALONE)
        probed = compare(model.name, [alone], ranks, Loopback(), PROBE, tell)
        compute_s = probed.figure(alone.name, lambda run: run.step_ms).median / 1e3
    return Balance(share, compute_s, 2 * (ranks - 1) / ranks * model.gradient_bytes)
