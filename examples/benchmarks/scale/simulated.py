"""Coordination of more ranks than this machine has room for, from constants that what was measured gives.

The constants of a system are fitted to its coordinations on this machine, whose ranks share its cores
(prediction.py says how). What is simulated has a processor for each rank, as ranks on hosts of their
own have, and hops that take what they took on loopback and `latency_s` more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.examples.benchmarks.scale.prediction import Constants, fit, time_s, worst_error
from paceline.examples.benchmarks.scale.systems import ScaleSystem

# Three constants need as many numbers of ranks.
FEWEST_RANKS = 3
MOST_RANKS = 4096
RANKS = tuple(2**power for power in range(1, MOST_RANKS.bit_length()))


@dataclass(frozen=True)
class Simulation:
    """One system in steps of `parts` parts. Times are of a step's coordinations, by number of ranks, in seconds.

    `here_s`: on this machine, of the numbers of ranks that were measured; `error`: how far these are from what was
    measured, at most, relative to it. `hosts_s`: on hosts of their own, of RANKS.
    """

    constants: Constants
    error: float
    here_s: Mapping[int, float]
    hosts_s: Mapping[int, float]


def simulate(
    system: ScaleSystem, parts: int, measured_s: Mapping[int, float], cores: int, latency_s: float
) -> Simulation | None:
    """What follows from a step's coordinations on this machine of `cores`, by number of ranks; None from too few, and
    where they are best met by constants under which nothing grows with the ranks: that is noise, and says nothing of
    more ranks.
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
