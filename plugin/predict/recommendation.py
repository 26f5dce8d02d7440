"""Which exchange is predicted to be worth it: synchronous as it is, synchronous with merging, or pipelined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paceline.errors import UserError
from paceline.predict import iteration as model
from paceline.predict.iteration import LAYER_WISE, POLICIES, SEQUENTIAL, Iteration

SYNC, PIPELINED = "sync", "pipelined"
# Stale gradients cost stability at large learning rates, so pipelining must bring more than the error of a prediction.
LEAST_GAIN = 0.05
TOO_LITTLE = f", less than the {LEAST_GAIN:.0%} that stale gradients should bring"
# Merging changes no result: it only has to be seen.
LEAST_MERGING_GAIN = 0.01
OPTIMAL = "optimal"
ROUNDING = 1e-9


@dataclass(frozen=True)
class Recommendation:
    """`exchange` is sync or pipelined, `policy` merges its messages, `reason` is a sentence.

    By policy: `synchronous_s` and, with K = 2, `pipelined_s` are seconds per iteration, `communication_s` those that
    all messages of a pipelined iteration take.
    """

    exchange: str
    policy: str
    reason: str
    synchronous_s: dict[str, float]
    pipelined_s: dict[str, float]
    communication_s: dict[str, float]

    @property
    def step_s(self) -> float:
        """The iteration that is recommended."""
        return (self.pipelined_s if self.exchange == PIPELINED else self.synchronous_s)[self.policy]


def recommend(iteration: Iteration, synchronous_s: Mapping[str, float] | None = None) -> Recommendation:
    """What is predicted fastest, in doubt the simpler one.

    `synchronous_s` are seconds per iteration by policy where others than the model's own are to be considered, as those
    of Horovod's own merging; the first is what is done without any merging by plan. Raises UserError if it is empty.
    """
    if synchronous_s is None:
        synchronous_s = {policy: model.synchronous_s(iteration, policy) for policy in POLICIES}
    if not synchronous_s:
        raise UserError("There is no synchronous exchange to compare with.", "Give the time of at least one policy.")
    plain = next(iter(synchronous_s))
    merged = fastest(synchronous_s)
    communication_s = {policy: model.communication_s(iteration, policy) for policy in (SEQUENTIAL, LAYER_WISE)}
    pipelined_s = {policy: model.pipelined_s(iteration, policy) for policy in communication_s}
    pipelined = fastest(pipelined_s, SEQUENTIAL)
    by_merging = _gain(synchronous_s[plain], synchronous_s[merged])
    by_pipelining = _gain(synchronous_s[merged], pipelined_s[pipelined])
    reason = f"communication takes {_share(communication_s[pipelined], iteration.compute_s)}; "
    exchange, policy = SYNC, merged
    if by_pipelining >= LEAST_GAIN:
        exchange, policy = PIPELINED, pipelined
        reason += f"pipelining is predicted {1 + by_pipelining:.2f} times as fast as synchronous steps "
        reason += f"merged by {merged} (its limit is 2)"
        if communication_s[pipelined] > iteration.compute_s:
            reason += ", and beyond that only fewer bytes or a faster network help"
    elif by_merging >= LEAST_MERGING_GAIN:
        reason += f"merging by {merged} makes a step {1 + by_merging:.2f} times as fast, and pipelining would add "
        reason += f"{max(0.0, by_pipelining):.1%}{TOO_LITTLE}"
    else:
        policy = plain
        reason += f"merging by plan would bring {by_merging:.1%} and pipelining {max(0.0, by_pipelining):.1%} more"
        reason += TOO_LITTLE
    return Recommendation(exchange, policy, reason, dict(synchronous_s), pipelined_s, communication_s)


def fastest(times_s: Mapping[str, float], preferred: str = OPTIMAL) -> str:
    """The policy that takes least; of several the preferred one: it needs fewer messages for it than others."""
    least_s = min(times_s.values())
    equal = [policy for policy, time_s in times_s.items() if time_s <= least_s * (1 + ROUNDING)]
    return preferred if preferred in equal else equal[0]


def _gain(slow_s: float, fast_s: float) -> float:
    """By how much faster, as a share: 1 is twice as fast. An iteration of no time at all cannot be made faster."""
    return slow_s / fast_s - 1 if fast_s > 0 else 0.0


def _share(communication_s: float, compute_s: float) -> str:
    if compute_s <= 0:
        return f"{1e3 * communication_s:.3g} ms, computation nothing"
    return f"{communication_s / compute_s:.3g} times as long as computation"
