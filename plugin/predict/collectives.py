"""Time of an iteration on a given network with each way to combine gradients."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from paceline.fusion.costs import ALGORITHMS, of_algorithm
from paceline.predict.iteration import (
    LAYER_WISE,
    SEQUENTIAL,
    Iteration,
    communication_s,
    pipelined_s,
    pipelined_unlimited_s,
    synchronous_s,
)
from paceline.predict.parameter_server import parameter_server_costs

PARAMETER_SERVER = "parameter server"


@dataclass(frozen=True)
class Collective:
    """Seconds per iteration with one way to combine, K = 2.

    `communication_s`, `synchronous_s` (D-Sync; PS-Sync for the parameter server) and `pipelined_s` are by policy:
    `single` (sequential) and `none` (layer-wise). `unlimited_s`: sequential, with unlimited resources.
    """

    name: str
    communication_s: dict[str, float]
    synchronous_s: dict[str, float]
    pipelined_s: dict[str, float]
    unlimited_s: float


def compare(
    iteration: Iteration,
    ranks: int,
    alpha_s: float,
    beta_s: float,
    gamma_s: float = 0.0,
    overhead_s: float = 0.0,
) -> list[Collective]:
    """Return all ways among `ranks`, with their costs in place of the iteration's; `overhead_s` precedes each message.

    alpha: start-up of a message between two ranks in seconds; beta, gamma: seconds to move and to add a byte. Raises
    UserError for invalid values.
    """
    costs = {name: of_algorithm(name, ranks, alpha_s, beta_s, gamma_s) for name in ALGORITHMS}
    costs[PARAMETER_SERVER] = parameter_server_costs(ranks, alpha_s, beta_s, gamma_s)
    return [_of(name, dataclasses.replace(iteration, costs=one.plus(overhead_s))) for name, one in costs.items()]


def _of(name: str, iteration: Iteration) -> Collective:
    policies = (SEQUENTIAL, LAYER_WISE)
    return Collective(
        name,
        {policy: communication_s(iteration, policy) for policy in policies},
        {policy: synchronous_s(iteration, policy) for policy in policies},
        {policy: pipelined_s(iteration, policy) for policy in policies},
        pipelined_unlimited_s(iteration),
    )
