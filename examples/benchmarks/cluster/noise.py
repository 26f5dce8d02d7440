"""A noisy network: rates of links that fall at random, as when other traffic shares them."""

from __future__ import annotations

import itertools
import math
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import NormalDist

from paceline.errors import UserError
from paceline.examples.benchmarks.cluster.cluster import Cluster
from paceline.examples.benchmarks.cluster.rates import parse_rate

CHANGE_S = 0.2  # from a change of one host's link to that of the next one
STOP_TIMEOUT_S = 30.0
SEED = 1505


def slowdowns(tail: float, seed: int = SEED) -> Iterator[float]:
    """Yield random factors of a link's time for a byte: the median is 1, the 99th percentile `tail`, none is below 1.

    Above 1 they are log-normal. Raises UserError for a tail that is not above 1.
    """
    if not tail > 1:
        raise UserError(f"noise={tail:g} is no noise.", "Give the 99th percentile over the median, such as noise=3.")
    sigma = math.log(tail) / NormalDist().inv_cdf(0.99)
    draws = random.Random(seed)
    while True:
        yield max(1.0, math.exp(sigma * draws.gauss(0.0, 1.0)))


@contextmanager
def noisy(cluster: Cluster, rate: str | None, tail: float) -> Iterator[None]:
    """Context in which the links of `cluster` have `rate` divided by `slowdowns(tail)`, one link after another.

    Raises UserError without a rate, and at the end if a link could not be changed.
    """
    if rate is None:
        raise UserError("noise has no effect on links without a limit.", "Give rate=200mbit.")
    rate_bit_s, factors = parse_rate(rate), slowdowns(tail)
    ended = threading.Event()
    failed: list[BaseException] = []

    def change() -> None:
        try:
            for host in itertools.cycle(range(len(cluster.names))):
                if ended.wait(CHANGE_S):
                    return
                cluster.set_rate(host, f"{round(rate_bit_s / next(factors))}bit")
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=change, name="noise", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(STOP_TIMEOUT_S)
    if failed:
        raise failed[0]
