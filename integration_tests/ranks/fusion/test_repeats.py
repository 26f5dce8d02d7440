"""A fixed plan gives the same numbers, bit for bit, in every run."""

from __future__ import annotations

import hashlib
import random
import time
from pathlib import Path

import horovod.torch as hvd
import pytest
import torch

from integration_tests.support.merging import ask_for, step_until
from integration_tests.support.ranks import run_ranks
from paceline.fusion import plan_file
from paceline.fusion.report import report

STEPS = 50
SIZES = [(17, 33), (33,), (33, 29), (29,), (29, 5), (5,)]
NAMES = [f"allreduce.repeats.{n}" for n in range(len(SIZES))]


def _train(rank: int, size: int, seed: int, policies: list[str]) -> dict[str, str]:
    """For each policy a digest of the parameters after some steps under its plan. Only delays depend on `seed`."""
    torch.set_num_threads(1)
    pause = random.Random(seed + rank)
    digests = {}
    for policy in policies:
        data = torch.Generator().manual_seed(rank)
        model = [torch.nn.Parameter(torch.zeros(shape)) for shape in SIZES]
        optimizer = torch.optim.SGD(model, lr=0.1, momentum=0.9)
        hvd_optimizer = hvd.DistributedOptimizer(
            optimizer, named_parameters=[(f"repeats.{n}", one) for n, one in enumerate(model)]
        )

        def step_of(step: int) -> None:
            hvd_optimizer.zero_grad()  # noqa: B023
            for parameter in model:  # noqa: B023
                time.sleep(pause.random() * 0.001)
                (parameter * torch.randn(parameter.shape, generator=data)).sum().backward()  # noqa: B023
            hvd_optimizer.step()  # noqa: B023

        ask_for("torch", policy)
        found = step_until("torch", step_of)
        expected = {"none": [[name] for name in NAMES], "single": [NAMES]}.get(policy, GROUPS)
        assert sorted(map(sorted, found.groups)) == sorted(map(sorted, expected))
        # From here on the plan is followed: count from zero.
        data.manual_seed(rank)
        hvd_optimizer.state.clear()
        with torch.no_grad():
            for parameter in model:
                parameter.zero_()
        for step in range(STEPS):
            step_of(step)
        assert report("torch").timeouts == 0
        digests[policy] = hashlib.sha256(b"".join(one.detach().numpy().tobytes() for one in model)).hexdigest()
        ask_for("torch", "threshold")
    return digests


GROUPS = [[NAMES[5], NAMES[0]], [NAMES[1], NAMES[4], NAMES[3]], [NAMES[2]]]


@pytest.mark.more
def test_two_runs_give_the_same_weights(tmp_path: Path) -> None:
    plan_file.write(tmp_path / "plan.json", "by hand", GROUPS)
    policies = ["none", "single", f"file:{tmp_path / 'plan.json'}"]
    runs = [run_ranks(_train, 3, seed, policies, fresh=True) for seed in (1, 1000)]
    for digests in zip(*(run for run in runs), strict=True):
        assert digests[0] == digests[1]
    assert runs[0][0] == runs[0][1] == runs[0][2], "ranks differ"
    assert all(len(set(run[0].values())) > 1 for run in runs), "merging changes the order of sums, hence their bits"
