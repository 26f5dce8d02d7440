"""Random trainings that write histories: exchange, model, delays and events are drawn, the same on all ranks."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

from integration_tests.support.histories import history

UPDATES = 40  # of each training
# Share of updates that each event follows or replaces.
DISCARDED, DRAINED, FROZEN = 0.04, 0.03, 0.05


def _exchange(hvd: Any, same: random.Random, size: int) -> Any:
    return same.choice(
        [
            "sync",
            "split",
            hvd.Pipelined(k=same.randint(2, 4), warmup_steps=same.choice([0, 3])),
            hvd.Partial(quorum=same.choice(["solo", "majority", "random", size]), seed=same.randrange(100)),
            hvd.Partial(quorum=same.randint(1, size), max_lag=same.choice([0, 1, 3])),
            hvd.Partial(quorum="majority", sync_every=same.randint(3, 9)),
            hvd.Local(sync_every=same.randint(2, 6), outer_momentum=same.choice([0.0, 0.9])),
        ]
    )


def _model(same: random.Random) -> Any:
    import torch

    torch.manual_seed(same.randrange(1000))
    widths = [6, *(same.randint(1, 40) for _ in range(same.randint(2, 9))), 2]
    layers = [part for pair in itertools.pairwise(widths) for part in (torch.nn.Linear(*pair), torch.nn.Tanh())]
    model = torch.nn.Sequential(*layers)
    return model.double() if same.random() < 0.3 else model


def train(rank: int, size: int, folder: str, seed: int) -> str:
    """Make one random training in a world of its own; return its exchange."""
    import torch

    same, own = random.Random(seed), random.Random(1000 * seed + rank)
    with history(folder) as hvd:
        exchange, model = _exchange(hvd, same, size), _model(same)
        parameters = list(model.parameters())
        made = same.choice([torch.optim.SGD, torch.optim.Adam])(parameters, lr=0.01)
        options: dict[str, Any] = {"bucket_bytes": 0} if same.random() < 0.6 else {}
        optimizer = hvd.DistributedOptimizer(made, model.named_parameters(), exchange=exchange, **options)
        partial = isinstance(exchange, hvd.Partial)
        local = isinstance(exchange, hvd.Local)
        # The members of a bucket do not change while it is in flight.
        freezes = exchange in ("sync", "split") or (isinstance(exchange, hvd.Pipelined) and bool(options))
        weighted = same.random() < 0.2
        for _ in range(UPDATES):
            if own.random() < 0.3 * partial:
                time.sleep(own.random() * 0.01)
            if weighted:
                optimizer.weight = own.randrange(4)
            data = torch.randn(3, 6, generator=torch.Generator().manual_seed(own.randrange(1 << 30)))
            model(data.to(parameters[0].dtype)).square().sum().backward()
            chance = same.random()
            if chance < DISCARDED and not local:
                if same.random() < 0.5:
                    optimizer.synchronize()
                optimizer.discard()
                continue
            optimizer.step()
            optimizer.zero_grad()
            if chance > 1 - DRAINED:
                optimizer.drain()
            elif chance > 1 - DRAINED - FROZEN and freezes:
                one = same.choice(parameters[:-1])
                one.requires_grad_(not one.requires_grad)
        optimizer.drain()
    return str(exchange)
