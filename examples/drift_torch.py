"""Final weight of a training in which one rank is always late: `horovodrun -np 4 python examples/drift_torch.py`.

The data of rank r pulls the weight towards r, so that the mean of the data is at (ranks - 1) / 2. The last rank needs
three times as long for a step. If ranks count by how often they contribute, the result is near the fast ones' targets.
`--plain` simulates that in one process: local SGD without rounds, in which a server adds the change of a rank whenever
it arrives (the toy of google-deepmind/asyncdiloco).
"""

from __future__ import annotations

import argparse
import heapq
import time

import torch

import paceline.torch as hvd

RATE, STEP_S, SLOWER, INNER = 0.05, 0.004, 3, 8


def plain(ranks: int, steps: int) -> float:
    """Return the final weight of asynchronous local SGD.

    Each rank makes INNER steps from the server's weight, and the server adds the rank's change divided by `ranks`.
    """
    server, due = 0.0, [(INNER * (SLOWER if rank == ranks - 1 else 1), rank, 0.0) for rank in range(ranks)]
    heapq.heapify(due)
    while due:
        now, rank, begun = heapq.heappop(due)
        server += (rank - begun) * (1 - (1 - RATE) ** INNER) / ranks
        later = now + INNER * (SLOWER if rank == ranks - 1 else 1)
        if later <= SLOWER * steps:
            heapq.heappush(due, (later, rank, server))
    return server


def main() -> None:
    """Train, and print the weight at the end and its mean over the second half."""
    parser = argparse.ArgumentParser(description="Where training ends if one rank is always late.")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--plain", type=int, metavar="RANKS", help="asynchronous local SGD, played in one process")
    chosen = parser.parse_args()
    if chosen.plain:
        print(
            f"{chosen.plain} ranks: {plain(chosen.plain, chosen.steps):.2f}, mean of the data {(chosen.plain - 1) / 2}"
        )
        return
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    weight = torch.nn.Parameter(torch.zeros(()))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=RATE), [("weight", weight)])
    later = []
    for step in range(chosen.steps):
        time.sleep(STEP_S * (SLOWER if rank == size - 1 else 1))
        optimizer.zero_grad()
        (0.5 * (weight - rank) ** 2).backward()
        optimizer.step()
        if step >= chosen.steps // 2:
            later.append(weight.item())
    optimizer.drain()
    found = hvd.mean(weight.item()), hvd.mean(sum(later) / len(later))
    if rank == 0:
        print(f"{size} ranks: {found[0]:.2f}, {found[1]:.2f} in the second half, mean of the data {(size - 1) / 2}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
