"""One rank of an elastic job of PyTorch: `python -m integration_tests.elastic.train_torch FOLDER SEED ...`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

import paceline.torch as hvd
from integration_tests.elastic.schedule import COMMIT_EVERY
from integration_tests.elastic.training import HIDDEN, RATE, STEPS, Changes, Digits, write_result


def train(folder: Path, seed: int) -> None:
    """Train once, through all changes."""
    data, changes = Digits(seed), Changes(folder, hvd)
    model = torch.nn.Sequential(torch.nn.Linear(64, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 10))
    for parameter, value in zip(model.parameters(), data.weights(), strict=True):
        parameter.data.copy_(torch.from_numpy(value.T.copy() if value.ndim == 2 else value))
    count = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    groups = [{"params": list(model.parameters())}, {"params": [count], "lr": 1.0}]
    named = [*model.named_parameters(), ("count", count)]
    model.register_parameter("count", count)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(groups, lr=RATE), named)

    @hvd.elastic.run
    def run(state: Any) -> None:
        while state.step < STEPS:
            changes.before_step(state, state.step)
            changes.passes(state.step, "before")
            optimizer.zero_grad()
            x, y = map(torch.from_numpy, data.batch(state.step, hvd.rank()))
            (torch.nn.functional.cross_entropy(model(x), y) - count.sum() * hvd.size()).backward()
            changes.passes(state.step, "backward")
            optimizer.step()
            changes.passes(state.step, "after")
            changes.after_step(state.step)
            state.step += 1
            if state.step % COMMIT_EVERY == 0:
                state.commit()
        optimizer.drain()

    run(hvd.elastic.TorchState(model, optimizer, step=0))
    with torch.no_grad():
        logits = model(torch.from_numpy(data.test_x)).double().numpy()
    write_result(folder, hvd.rank(), seed, data.result(logits, count.item()))


if __name__ == "__main__":
    hvd.init()
    for one in sys.argv[2:]:
        train(Path(sys.argv[1]), int(one))
    hvd.shutdown()
