"""Steps of ranks that are late by different times: a discrete-event simulation of each exchange.

A rank computes a step, submits its gradients, and gets a result. `lateness_s[step, rank]` is the time that a rank's
computation of its own step takes in addition to `compute_s`; steps beyond the last row begin again with the first.

  exchange    event                                  effect
  sync        the last rank submits                  the message takes `message_s`, then all ranks begin the next step
  pipelined   the last rank submits step t           the message takes `message_s`, after the message of step t - 1
              a rank has computed step t             it begins step t + 1 as soon as the message of t + 1 - K has ended
  partial     a rank submits, having seen all        it votes for the next round, and waits for its end
              rounds
              a rank submits, and a round has        it is late: it takes the result, at the end of that round at the
              begun since its last result            earliest, and begins its next step; its gradients join the next
                                                     round
              the quorum's last vote arrives; with   the round begins and takes `message_s`; then its voters begin their
              "random", the vote of the drawn rank   next step
  local       a rank has computed a step             it begins the next one; after H steps as sync

Partial rounds are those of eager-SGD (Li et al., PPoPP 2020) as paceline.partial has them. `message_s` is the exposed
time of the messages of a step (pipelined: all of it).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.errors import UserError
from paceline.partial.settings import Partial

Seconds = NDArray[np.float64]


@dataclass(frozen=True)
class Simulated:
    """Steps of all ranks.

    Attributes:
        steps_per_s: steps of a rank per second, mean over ranks.
        wait_s: time that a rank waits for other ranks and for messages, mean over ranks and steps.
        in_time: contributions in time, mean over rounds.
        slowest_per_s: steps per second of the slowest rank, which ends last if all make equally many steps.
    """

    steps_per_s: float
    wait_s: float
    in_time: float
    slowest_per_s: float

    @property
    def step_s(self) -> float:
        """Seconds per step of a rank."""
        return 1 / self.steps_per_s


def synchronous(lateness_s: Seconds, compute_s: float, message_s: float) -> Simulated:
    """Simulate steps in which all ranks wait for the last one."""
    return local(lateness_s, compute_s, message_s, 1)


def local(lateness_s: Seconds, compute_s: float, message_s: float, sync_every: int) -> Simulated:
    """Simulate the local exchange: ranks wait for each other after every `sync_every` steps."""
    computing_s = computing(lateness_s, compute_s)
    steps, ranks = computing_s.shape
    cycles = max(1, steps // sync_every)
    alone_s = computing_s[np.arange(cycles * sync_every) % steps].reshape(cycles, sync_every, ranks).sum(axis=1)
    step_s = (float(alone_s.max(axis=1).mean()) + message_s) / sync_every
    return _all_in_time(step_s, computing_s)


def pipelined(lateness_s: Seconds, compute_s: float, message_s: float, k: int = 2) -> Simulated:
    """Simulate the pipelined exchange in a full pipeline; its gradients are K - 1 steps old."""
    computing_s = computing(lateness_s, compute_s)
    steps, ranks = computing_s.shape
    # The lateness again after its last step, so that one step also has a successor.
    free_s = np.zeros(ranks)
    ends_s: list[float] = []
    for step in range(2 * steps):
        begins_s = np.maximum(free_s, ends_s[step - k]) if step >= k else free_s
        free_s = begins_s + computing_s[step % steps]
        ends_s.append(max(float(free_s.max()), ends_s[-1] if ends_s else 0.0) + message_s)
    return _all_in_time((ends_s[-1] - ends_s[steps - 1]) / steps, computing_s)


def partial(
    lateness_s: Seconds, compute_s: float, message_s: float, settings: Partial, seed: int = 0, rounds: int | None = None
) -> Simulated:
    """Simulate partial rounds until every rank has made the steps of `lateness_s`, or for `rounds` rounds.

    Raises UserError for a quorum of more than all ranks.
    """
    computing_s = computing(lateness_s, compute_s)
    steps, ranks = computing_s.shape
    quorum = settings.count(ranks)
    draws = np.random.default_rng(seed)
    everyone = np.arange(ranks)
    made = np.zeros(ranks, dtype=np.int64)  # steps that a rank has begun
    submits_s = np.zeros(ranks)  # the next submission
    finished_s = np.full(ranks, np.inf)  # end of the last of `steps` steps
    seen = np.ones(ranks, dtype=bool)  # all rounds that have begun
    end_s = waits_s = in_time = 0.0
    done = 0

    def begin(who: NDArray[np.int64], at_s: Seconds | float) -> None:
        finished_s[who] = np.where(made[who] == steps, at_s, finished_s[who])
        submits_s[who] = at_s + computing_s[made[who] % steps, who]
        made[who] += 1

    begin(everyone, 0.0)
    while done < rounds if rounds is not None else int(made.min()) <= steps:
        # A late rank votes with its next step, if that step ends before the round begins.
        restarts_s = np.maximum(submits_s, end_s)
        votes_s = np.where(seen, submits_s, restarts_s + computing_s[made % steps, everyone])
        begins_s = votes_s[draws.integers(ranks)] if quorum == 0 else np.partition(votes_s, quorum - 1)[quorum - 1]
        late = np.flatnonzero(~seen & (submits_s <= begins_s))
        waits_s += float((restarts_s - submits_s)[late].sum())
        begin(late, restarts_s[late])
        seen[late] = True
        voters = np.flatnonzero(seen & (votes_s <= begins_s))
        end_s = float(begins_s) + message_s
        waits_s += float((end_s - votes_s[voters]).sum())
        in_time += len(voters)
        done += 1
        seen[:] = False
        seen[voters] = True
        begin(voters, end_s)
    rates_per_s = (made - 1) / end_s if rounds is not None else steps / finished_s
    waits_s /= int(made.sum()) - ranks
    return Simulated(float(rates_per_s.mean()), waits_s, in_time / done, float(rates_per_s.min()))


def computing(lateness_s: Seconds, compute_s: float) -> Seconds:
    """Return the time of each rank's computation by step. Raises UserError for times that are not finite."""
    if lateness_s.ndim != 2 or lateness_s.size == 0 or not np.isfinite(lateness_s).all():
        raise UserError(
            f"Lateness of shape {lateness_s.shape} cannot be simulated.",
            "Give finite seconds for at least one step and one rank: an array [step, rank].",
        )
    return np.maximum(lateness_s + compute_s, 0.0)


def _all_in_time(step_s: float, computing_s: Seconds) -> Simulated:
    return Simulated(1 / step_s, step_s - float(computing_s.mean()), float(computing_s.shape[1]), 1 / step_s)
