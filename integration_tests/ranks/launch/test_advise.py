"""`paceline advise` on examples and on scripts that cannot be advised on, with two ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta, Struct

from integration_tests.support.processes import PACELINE, finished, written
from paceline.record import trace

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
TORCH = (str(EXAMPLES / "characters_torch.py"), "--steps", "3000")
KERAS = (str(EXAMPLES / "digits_keras.py"), "--epochs", "200")
LIMIT_S = 110

SCRIPT = """
import sys
import time
import torch
import horovod.torch as hvd

hvd.init()
weights = {f"w{n}": torch.nn.Parameter(torch.zeros(5000 * n + 1)) for n in range(4)}
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights.values(), lr=1.0), named_parameters=weights.items())
for step in range(int(sys.argv[1])):
    if "fail" in sys.argv and step == 3 and hvd.rank() == 1:
        raise KeyError(50257)
    optimizer.zero_grad()
    time.sleep(0.03)
    sum((w * (hvd.rank() + 1)).sum() for w in weights.values()).backward()
    optimizer.step()
"""
WITHOUT = "import sys, time\nprint('no ranks here', flush=True)\ntime.sleep(float(sys.argv[1]))\n"

Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]


class Ratio(Struct, forbid_unknown_fields=True):
    median: Positive
    low: Positive
    high: Positive
    turns: Annotated[int, Meta(ge=1)]


class Setting(Struct, forbid_unknown_fields=True):
    variables: dict[str, str]
    code: str
    predicted_step_s: Positive
    predicted_ratio: Positive
    measured_step_s: Positive | None
    measured_ratio: Ratio | None
    failed: str
    changes_results: bool
    staleness: str
    memory: str
    wire: Positive
    accuracy_lost: str
    page: str


class Curve(Struct, forbid_unknown_fields=True):
    setting: str
    bandwidth: list[Positive]
    step_s: list[Positive]


class Advised(Struct, forbid_unknown_fields=True):
    """The schema of `--json`."""

    format: Literal["paceline-advice"]
    version: Literal[1]
    command: list[str]
    ranks: Annotated[int, Meta(ge=2)]
    steps: Annotated[int, Meta(ge=2)]
    gradients: Annotated[int, Meta(ge=1)]
    gradient_bytes: Annotated[int, Meta(ge=1)]
    step_s: Positive
    compute_s: NotNegative
    exposed_s: NotNegative
    waits_for_late_ranks_s: NotNegative
    predicted_error: float
    verified: bool
    settings: list[Setting]
    recommended: str | None
    notes: list[str]
    curves: list[Curve]


def advise(
    folder: Path, *words: str, flags: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `paceline advise`; a run's time is not the tests' concern, so steps alone end it."""
    command = [*PACELINE, "advise", "--seconds", "0", *flags, "-np", "2", sys.executable, *words]
    return finished(*command, folder=folder, timeout_s=LIMIT_S, env=env)


def advised(text: str) -> Advised:
    found = msgspec.json.decode(text, type=Advised)
    assert found.settings[0].variables == {}, "stock Horovod comes first"
    names = [" ".join(f"{name}={value}" for name, value in one.variables.items()) for one in found.settings]
    assert found.recommended is None or found.recommended in names
    assert {"PACELINE_FUSION=optimal", "PACELINE_EXCHANGE=local"} <= set(names)
    return found


def test_a_torch_example_is_advised_on_and_its_own_settings_are_set_aside(tmp_path: Path) -> None:
    files = ("--json", "advice.json", "--html", "advice.html", "--trace", "trace.json")
    done = advise(tmp_path, *TORCH, flags=("--steps", "30", *files), env={"PACELINE_EXCHANGE": "pipelined"})
    assert done.returncode == 0, done.stderr
    found = advised((tmp_path / "advice.json").read_text())
    assert not found.verified and all(one.measured_ratio is None for one in found.settings)
    assert any(one.variables.get("PACELINE_EXCHANGE") == "split" for one in found.settings)
    assert "Set aside in all runs: PACELINE_EXCHANGE=pipelined." in done.stderr
    assert "Stock Horovod's step took" in done.stdout
    assert "PACELINE_EXCHANGE=local" in done.stdout.replace("\n", "")
    recorded = trace.load(tmp_path / "trace.json")
    assert recorded.costs is not None and len(recorded.costs.armed) > 1
    # A third of 30 is left out; ranks end some steps later.
    assert recorded.missing == [] and len(recorded.ranks[0].steps) in range(20, 25)
    assert "<svg" in (tmp_path / "advice.html").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["advice.html", "advice.json", "trace.json"]


def test_a_keras_example_is_advised_on_and_json_is_printed_alone(tmp_path: Path) -> None:
    done = advise(tmp_path, *KERAS, flags=("--steps", "20", "--json", "-"))
    assert done.returncode == 0, done.stderr
    found = advised(done.stdout)
    assert not any("split" in one.variables.values() for one in found.settings), "it is PyTorch's"
    assert list(tmp_path.iterdir()) == []


def test_a_script_that_fails_reports_its_failure_alone(tmp_path: Path) -> None:
    done = advise(tmp_path, str(written(tmp_path, SCRIPT)), "40", "fail")
    assert done.returncode == 1 and done.stdout == ""
    assert "Error: Rank 1 failed first: KeyError: 50257 (" in done.stderr and "script.py, line 12)" in done.stderr
    assert "advice" not in done.stderr and "advise" not in done.stderr


def test_too_few_steps_are_counted_and_enough_of_them_will_do(tmp_path: Path) -> None:
    script = str(written(tmp_path, SCRIPT))
    done = advise(tmp_path, script, "6")
    assert done.returncode == 2
    assert "The script ended after 6 steps; 10 are needed" in done.stderr
    done = advise(tmp_path, script, "25", flags=("--json", "-"))
    assert done.returncode == 0, done.stderr
    assert "ended after 25 of 60 steps; the advice is made from these" in done.stderr
    assert advised(done.stdout).steps <= 25


@pytest.mark.parametrize(
    ("flags", "sleeps_s", "phrase"),
    [((), "0", "The script ended and no rank"), (("--time-limit", "3"), "300", "was ended after 3 s (--time-limit)")],
)
def test_a_script_without_horovod_is_refused(
    flags: tuple[str, ...], sleeps_s: str, phrase: str, tmp_path: Path
) -> None:
    done = advise(tmp_path, str(written(tmp_path, WITHOUT)), sleeps_s, flags=flags)
    assert done.returncode == 2, done.stderr
    assert phrase in done.stderr and "hvd.init()" in done.stderr
    assert "[0]<stdout>:no ranks here" in done.stderr and done.stdout == ""


def test_record_ends_after_its_steps(tmp_path: Path) -> None:
    command = [*PACELINE, "record", "--steps", "12", "-np", "2", sys.executable, str(written(tmp_path, SCRIPT))]
    done = finished(*command, "1000000", folder=tmp_path, timeout_s=LIMIT_S)
    assert done.returncode == 0, done.stderr
    recorded = trace.load(tmp_path / "trace.json")
    assert recorded.missing == [] and all(rank.steps[-1].index >= 12 for rank in recorded.ranks)
    assert "Error" not in done.stderr


@pytest.mark.more
@pytest.mark.timeout(600)
def test_the_best_settings_are_measured_in_turn(tmp_path: Path) -> None:
    flags = ("--verify", "--turns", "1", "--steps", "40", "--json", "-")
    command = [*PACELINE, "advise", *flags, "-np", "2", sys.executable, *TORCH]
    done = finished(*command, folder=tmp_path, timeout_s=500)
    assert done.returncode == 0, done.stderr
    found = msgspec.json.decode(json.dumps(json.loads(done.stdout)), type=Advised)
    measured = [one for one in found.settings if one.measured_ratio is not None]
    assert found.verified and 2 <= len(measured) <= 4 and measured[0].variables == {}, done.stderr
    assert all(len(one.variables) <= 1 for one in measured)
    slower = {tuple(one.variables.items()) for one in measured if one.measured_ratio and one.measured_ratio.high >= 1}
    assert found.recommended not in {f"{name}={value}" for pairs in slower for name, value in pairs}
