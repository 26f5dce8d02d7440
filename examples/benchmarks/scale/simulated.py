"""Coordination of more ranks than this machine can run, from constants fitted to measurements.

The constants of a system are fitted to its coordinations on this machine, whose ranks share its cores (see
prediction.py). The simulation has a processor for each rank, as ranks on separate hosts have. Its hops take the time on
loopback plus `latency_s`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.examples.benchmarks.scale.prediction import fit, worst_error
from paceline.examples.benchmarks.scale.systems import ScaleSystem
from paceline.predict.coordination import Constants, time_s

# Three constants need three numbers of ranks.
FEWEST_RANKS = 3
MOST_RANKS = 4096
RANKS = tuple(2**power for power in range(1, MOST_RANKS.bit_length()))


@dataclass(frozen=True)
class Simulation:
    """One system in steps of `parts` parts. Times are seconds of a step's coordinations, by number of ranks.

    `here_s`: fitted times on this machine, for the measured numbers of ranks. `error`: their largest relative error.
    `hosts_s`: times with a host for each rank, for RANKS.
    """

    constants: Constants
    error: float
    here_s: Mapping[int, float]
    hosts_s: Mapping[int, float]


def simulate(
    system: ScaleSystem, parts: int, measured_s: Mapping[int, float], cores: int, latency_s: float
) -> Simulation | None:
    """Simulate from a step's coordination seconds on this machine of `cores`, by number of ranks.

    Returns None for too few measurements. Also returns None if the best constants do not grow with the number of ranks:
    the measurements are noise then.
    """
    if len(measured_s) < FEWEST_RANKS:
        return None
    count = system.coordinations(parts)
    points = [(system.way(ranks), seconds / count) for ranks, seconds in measured_s.items()]
    constants = fit(points, cores)
    if constants.hop_s == constants.message_s == 0:
        return None

    def step_s(ranks: Sequence[int], latency_s: float, cores: int | None) -> dict[int, float]:
        return {one: count * time_s(system.way(one), constants, latency_s, cores) for one in ranks}

    return Simulation(
        constants,
        worst_error(points, constants, cores),
        step_s(list(measured_s), 0.0, cores),
        step_s(RANKS, latency_s, None),
    )
