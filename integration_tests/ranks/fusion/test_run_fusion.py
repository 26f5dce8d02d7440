"""`paceline run --fusion` under the real horovodrun: a policy reaches ranks that lack its module or its file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from integration_tests.support.more import more
from integration_tests.support.processes import PACELINE, finished
from paceline.fusion import plan_file

SIZES = (7, 1000, 33, 5000)  # elements of the script's gradients
MOST_STEPS = 2000
NAMES = [f"allreduce.w{number}" for number in range(len(SIZES))]

SCRIPT = f"""
import json
import sys
import torch
import horovod.torch as hvd
from paceline.fusion.report import report

hvd.init()
weights = {{f"w{{i}}": torch.nn.Parameter(torch.zeros(n)) for i, n in enumerate({SIZES})}}
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights.values(), lr=1.0), named_parameters=weights.items())
for step in range(1, {MOST_STEPS} + 1):
    optimizer.zero_grad()
    sum((w * (hvd.rank() + 1)).sum() for w in weights.values()).backward()
    optimizer.step()
    state = report("torch").state
    # Rank 0 says when it is over. A broadcast is no gradient: no plan speaks of it.
    over = torch.tensor([int(state in ("active", "refused"))])
    if hvd.broadcast(over, 0, name="over").item():
        break
found = report("torch")
values = [sorted(set(w.tolist())) for w in weights.values()]
if hvd.rank() == 0:
    result = {{"policy": found.policy, "state": found.state, "reason": found.reason, "groups": found.groups}}
    result |= {{"steps": step, "values": values}}
    open(sys.argv[1], "w").write(json.dumps(result))
"""

MODULE = """
def ends(gradients, costs):
    names = sorted(gradient.name for gradient in gradients)
    return [group_of(names[:1] + names[-1:]), group_of(names[1:-1])]

def group_of(names):
    return list(names)
"""


def run(folder: Path, policy: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Run the script in a folder below `folder`, on two ranks, with the policy as seen from `folder`."""
    below = folder / "below"
    below.mkdir()
    (below / "script.py").write_text(SCRIPT)
    result = folder / "result.json"
    words = ["--fusion", policy, "--debug", "fusion_warmup_steps=3,fusion_trial_steps=0", "-np", "2"]
    change = f"cd {below} && exec {sys.executable} script.py {result}"
    done = finished(*PACELINE, "run", *words, "sh", "-c", change, folder=folder)
    return done, result


@pytest.mark.parametrize("policy", ["merging:ends", more("file:plan.json")])
def test_ranks_follow_a_policy_that_only_the_launcher_has(policy: str, tmp_path: Path) -> None:
    (tmp_path / "merging.py").write_text(MODULE)
    plan_file.write(tmp_path / "plan.json", "mine", [[NAMES[3], NAMES[0]], [NAMES[1], NAMES[2]]])
    done, result = run(tmp_path, policy)
    assert done.returncode == 0, done.stderr
    assert f"fusion={policy} (--fusion)" in done.stderr
    found = json.loads(result.read_text())
    assert (found["policy"], found["state"], found["reason"]) == (policy, "active", "")
    groups = {frozenset(group) for group in found["groups"]}
    assert groups == {frozenset((NAMES[0], NAMES[3])), frozenset((NAMES[1], NAMES[2]))}
    assert found["values"] == [[-1.5 * found["steps"]]] * len(SIZES)
    assert done.stderr.count("Paceline: fusion=") == 1, "one line, on rank 0"


def test_ranks_refuse_a_name_that_nobody_registered(tmp_path: Path) -> None:
    done, result = run(tmp_path, "optimul")
    assert done.returncode != 0
    assert not result.exists()
    assert "No fusion policy optimul is known here. Did you mean optimal?" in done.stderr
    assert "There is no fusion policy 'optimul'." in done.stderr
