"""Networks as `paceline probe` writes them, made up for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.collectives.network_file import NetworkFile, Pair, Timing


def network(
    hosts: Sequence[str],
    times_s: Mapping[tuple[str, str, int], float],
    latency_s: float = 1e-4,
    bytes_per_s: float = 1e9,
) -> NetworkFile:
    """One of equal pairs; `times_s`: of messages by operation, collective and size in bytes."""
    ranks = range(len(hosts))
    pairs = [Pair(one, other, latency_s, bytes_per_s) for one in ranks for other in ranks if one != other]
    timings = [Timing(*case, seconds, 2 * seconds) for case, seconds in times_s.items()]
    return NetworkFile("0.1.0", tuple(hosts), 0, tuple(pairs), tuple(timings))
