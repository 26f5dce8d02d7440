"""Cost of combining gradients at a parameter server, for comparison with all-reduces."""

from __future__ import annotations

from paceline.core._core import CostModel
from paceline.errors import UserError
from paceline.fusion.costs import linear


def parameter_server_costs(
    workers: int, alpha_s: float, beta_s_per_byte: float, gamma_s_per_byte: float = 0.0
) -> CostModel:
    """Return the cost of PS-Sync (Pipe-SGD) among p workers, 2 alpha + p n (2 beta + gamma) for n bytes.

    The workers send n bytes to one server and get n bytes back. The server's link carries the traffic of all workers,
    so the time per byte grows with p; a ring's stays below 2 beta + gamma. Raises UserError for fewer than one worker
    and for times that are negative or not finite.
    """
    if workers < 1:
        raise UserError(f"A parameter server cannot have {workers} workers.", "Give at least 1.")
    for per_byte in (beta_s_per_byte, gamma_s_per_byte):
        linear(alpha_s, per_byte)  # refuses a negative value that the sum would hide
    return linear(2 * alpha_s, workers * (2 * beta_s_per_byte + gamma_s_per_byte))
