"""The eager-SGD paper's micro-benchmark: latencies of full and partial allreduces when rank r comes r skews late.

Li et al., "Taming Unbalanced Training Workloads in Deep Learning with Partial Collective Operations", PPoPP 2020,
section 7.1 and figure 9. All ranks are processes of this machine, so that CLOCK_MONOTONIC is the same for all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from paceline.examples.benchmarks.harness.launched import run_ranks

# The paper's sizes.
SIZES_BYTES = (64, 512, 4 << 10, 32 << 10, 256 << 10, 4 << 20)
ELEMENT_BYTES = 4  # float32
# What is measured of every call, along the last axis of the samples.
LATENCY_S, LATENESS_S, FRESH = range(3)
# The situations, along the axis before: all ranks at once, and rank r r skews later.
EVEN, SKEWED = range(2)

Samples = NDArray[np.float64]


@dataclass(frozen=True)
class SkewPlan:
    """What the ranks measure: `iterations` calls of every system in both situations for each of `sizes_bytes`.

    `skew_ms` lies between the arrivals of two ranks. `cycle_ms` is Horovod's cycle time. `flush_each`: after every call
    what is in the send buffers is brought out. `limit_s`: measuring ends after so many seconds for all sizes together,
    but not before each was measured once.
    """

    ranks: int
    skew_ms: float
    iterations: int
    sizes_bytes: tuple[int, ...]
    cycle_ms: float
    flush_each: bool
    limit_s: float

    def to_json(self) -> str:
        """One line that `from_json` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> SkewPlan:
        """The plan that `to_json` wrote."""
        fields = json.loads(text)
        return cls(**{**fields, "sizes_bytes": tuple(fields["sizes_bytes"])})


def measure(plan: SkewPlan, tell: Callable[[str], None] = lambda text: None) -> Iterator[tuple[int, Samples]]:
    """Each size in bytes with its samples, of shape (ranks, iterations, systems, situations, quantities).

    The systems are those of skew_model.SYSTEMS in that order. `tell` hears in a line what goes on. Raises UserError
    with the ranks' last words when one of them fails or hangs.
    """
    with TemporaryDirectory(prefix="paceline-bench-") as folder:
        result = Path(folder) / "samples.npz"
        words = ["-m", "paceline.examples.benchmarks.harness.skew_rank", plan.to_json(), str(result)]
        environ = {"HOROVOD_CYCLE_TIME": f"{plan.cycle_ms:g}"}
        run_ranks(words, plan.ranks, environ, plan.limit_s, tell)
        with np.load(result) as samples:
            for size_bytes in plan.sizes_bytes:
                yield size_bytes, samples[str(size_bytes)]
