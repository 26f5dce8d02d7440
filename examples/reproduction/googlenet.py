"""The simulation of MG-WFBP's paper: GoogleNet's layers on a K80, messages planned and predicted by Paceline's planner.

googlenet_k80_trace.csv has the layers' parameters and backward times; data.md has its source and licence.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path

from paceline.core import _core
from paceline.core._core import CostModel, Prediction

TRACE = Path(__file__).with_name("googlenet_k80_trace.csv")
BYTES_PER_PARAMETER = 4

RING_WORKERS = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
TREE_WORKERS = (128, 256, 512, 1024, 2048)
# Constants of the paper's simulator (B-Caffe, scripts/gmwfbp.py): seconds, and seconds per byte.
ALPHA_S = 45.25e-6
BETA_S = 1.2 / (9 * 2**30 / 8)
GAMMA_S = 160 / (4 * 16e9)
# The paper prints no constants of its trees. These are fitted to its curves, and rounded.
TREE_ALPHA_S, TREE_B_S = 1e-4, 3.84e-9


def ring(workers: int) -> CostModel:
    """Cost of the simulator's ring, which starts up 2 N times where the formula has 2 (N - 1)."""
    _, b_s_per_byte = _core.allreduce_cost("ring", workers, ALPHA_S, BETA_S, GAMMA_S)
    return CostModel.linear(2 * workers * ALPHA_S, b_s_per_byte)


def double_trees(workers: int) -> CostModel:
    """Cost of the double binary trees of Fig. 11, with fitted constants."""
    return CostModel.linear(2 * math.log2(workers) * TREE_ALPHA_S, TREE_B_S)


@dataclass(frozen=True)
class Layers:
    """Layers in the order of the backward pass: bytes of gradients, and the time at which each is ready."""

    layer_bytes: tuple[float, ...]
    ready_s: tuple[float, ...]

    @property
    def forward_s(self) -> float:
        """Time of the forward pass: half of the backward pass, as in the paper's simulator."""
        return self.ready_s[-1] / 2

    @property
    def compute_s(self) -> float:
        """Time of an iteration on one worker."""
        return self.forward_s + self.ready_s[-1]

    def plan(self, policy: str, cost: CostModel) -> tuple[Prediction, int]:
        """Return the prediction for a policy's messages, and their number."""
        types = [0] * len(self.layer_bytes)
        groups = _core.plan(policy, self.layer_bytes, self.ready_s, types, cost)
        return _core.predict(groups, self.layer_bytes, self.ready_s, types, cost), len(groups)

    def speed_up(self, policy: str, workers: int, cost: CostModel) -> float:
        """Return the speed-up over one worker."""
        prediction, _ = self.plan(policy, cost)
        return workers * self.compute_s / (self.forward_s + prediction.finish_s)


@cache
def googlenet() -> Layers:
    """The layers of the trace."""
    with TRACE.open(newline="") as file:
        layers = list(csv.DictReader(file))[::-1]
    return Layers(
        tuple(float(BYTES_PER_PARAMETER * int(layer["params"])) for layer in layers),
        tuple(accumulate(1e-6 * float(layer["backward_us"]) for layer in layers)),
    )


def ring_speed_ups(policy: str) -> list[float]:
    """Return the curve of Fig. 10 (a)."""
    return [googlenet().speed_up(policy, workers, ring(workers)) for workers in RING_WORKERS]


def ring_messages(policy: str) -> list[int]:
    """Return the number of messages in each iteration of Fig. 10 (a)."""
    return [googlenet().plan(policy, ring(workers))[1] for workers in RING_WORKERS]


def tree_speed_ups(policy: str) -> list[float]:
    """Return the curve of Fig. 11 (a)."""
    return [googlenet().speed_up(policy, workers, double_trees(workers)) for workers in TREE_WORKERS]
