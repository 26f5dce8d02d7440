"""`paceline plan`: tables, JSON, the written plan, the picture, and refusals."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.image import imread
from msgspec.structs import replace

from integration_tests.unit.collectives.test_collectives import measured as probed
from integration_tests.unit.fusion.test_from_trace import COORDINATION_S, NAMES, SIZES, recorded
from integration_tests.unit.launch.test_cli import refused
from paceline.collectives import network_file
from paceline.fusion import CostModel, Gradient, from_trace
from paceline.fusion.planning import Plan, make_plan
from paceline.fusion.resolve import resolve
from paceline.launch import cli
from paceline.launch.plan import plot as plan_plot
from paceline.record import trace
from paceline.registry.policies import BUILT_IN

MINE = """
def pairs(gradients, costs):
    return [range(len(gradients))[at:at + 2] for at in range(0, len(gradients), 2)]

def forgetful(gradients, costs):
    return [[gradient.name for gradient in gradients[1:]]]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder: a trace and a module with policies."""
    trace.write(recorded(), tmp_path / "trace.json")
    (tmp_path / "plan_policies.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "plan_policies", raising=False)
    return tmp_path


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli.main, ["plan", *words])


def values(*words: str) -> dict[str, Any]:
    negotiated = () if "--armed" in words else ("--no-armed",)
    result = invoke("trace.json", "--json", *words, *negotiated)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_tables() -> None:
    result = invoke("trace.json")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    rows = {line.split()[1]: line for line in lines if line.startswith("│")}
    for policy in BUILT_IN:
        assert policy in rows
    assert "optimal (best)" in result.stdout
    assert "measured in the trace" in result.stdout
    assert "2 ms + 10 ns per byte (0.1 GB/s), fitted to 63 messages of the trace" in result.stdout
    assert f"one coordination round: {1e3 * COORDINATION_S:g} ms" in result.stdout
    assert "Plan of optimal" in result.stdout
    assert NAMES[0] in result.stdout
    assert "7 gradients, 0.4949 MB, 3 ranks, 9 steps" in result.stdout


def test_json_agrees_with_the_trace_and_with_itself() -> None:
    found = values("--policy", "none")
    assert found["policy"] == "none"
    assert [group["tensors"] for group in found["groups"]] == [[name] for name in NAMES]
    assert [group["bytes"] for group in found["groups"]] == list(SIZES)
    assert found["groups"][-1]["end_s"] == found["predicted"]["none"]["finish_s"]
    # The trace was made with every tensor alone, so this row was measured.
    assert found["predicted"]["none"]["finish_s"] == pytest.approx(found["measured"]["finish_s"], rel=1e-6)
    assert found["predicted"]["none"]["messages"] == found["measured"]["messages"] == len(NAMES)
    assert found["predicted"][found["best"]]["finish_s"] == min(one["finish_s"] for one in found["predicted"].values())
    assert found["predicted"]["optimal"]["finish_s"] == found["predicted"][found["best"]]["finish_s"]
    assert found["coordination_s"] == pytest.approx(COORDINATION_S)
    assert found["cycle_s"] == 1e-3
    assert found["threshold_bytes"] == 128 * 1024 * 1024
    assert found["costs"]["a_s"] == pytest.approx(2e-3)


def _table(shown: str) -> list[list[str]]:
    """Cells of the table of remedies."""
    lines = shown[shown.index("Remedies") : shown.index("Plan of")].splitlines()
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]


def _rows(shown: str) -> dict[str, list[str]]:
    """Step, exposed communication and speed by the flags; a row whose flags are folded by its first line."""
    return {row[0]: row[1:4] for row in _table(shown) if row[1]}


def test_remedies_are_compared() -> None:
    """Half a megabyte takes five times as long as a step."""
    result = invoke("trace.json", "--cost", "1e-3,1e-5")
    assert result.exit_code == 0, result.output
    rows = [row for row in _table(result.stdout) if row[1]]
    assert [rows[0][0], rows[0][3:]] == ["Horovod's own", ["1.00", "nothing"]]
    speeds = [float(row[3]) for row in rows[1:]]
    assert speeds == sorted(speeds, reverse=True) and speeds[0] > 2
    assert "times the speed of Horovod's own; " in result.stdout
    found = values("--cost", "1e-3,1e-5")["remedies"]
    flags = [one["flags"] for one in found["predicted"]]
    assert flags[0] == "" and {"--exchange local", "-np 1"} <= set(flags)
    assert f"Recommended: `paceline run {found['recommended']}`" in result.stdout.replace("\n", " ")
    fast = values("--cost", "1e-6,1e-12")["remedies"]
    assert fast["recommended"] == ""
    assert "no remedy is worth its price" in invoke("trace.json", "--cost", "1e-6,1e-12").stdout


def test_remedies_beside_what_was_measured() -> None:
    result = invoke("trace.json", "--no-armed")
    assert result.exit_code == 0, result.output
    rows = _rows(result.stdout)
    assert rows["--fusion optimal"] == ["1000.00 ms", "2.40 ms", "1.00"]
    assert rows["measured in the trace"][:2] == rows["--fusion none"][:2], "every tensor was alone"
    pipelined = next(row for flags, row in rows.items() if "--exchange pipelined" in flags and "codec" not in flags)
    assert pipelined[:2] == ["997.60 ms", "0.00 ms"]
    assert "Computation: 997.60 ms of the recorded step of 1000.00 ms" in result.stdout
    assert "972.60 ms of it lie outside of what a trace shows" in result.stdout
    assert "Recommended: Horovod's own synchronous exchange: no remedy is worth its price." in result.stdout
    assert "takes 0.00977 times as long as computation" in result.stdout
    dear = invoke("trace.json", "--cost", "0.1,0").stdout
    assert dear.count("measured in the trace") == 0
    assert "Recommended: `paceline run --exchange pipelined`, 1." in dear
    assert "Communication takes 0.201 times" in dear
    merged = invoke("trace.json", "--cost", "0.012,0").stdout
    assert "Recommended: `paceline run --fusion optimal`, 1." in merged and "with the same results" in merged
    # Remedies as values.
    found = values("--cost", "0.1,0")
    remedies = found["remedies"]
    assert (remedies["step_s"], remedies["overlaps"]) == (pytest.approx(1.0), False)
    rest_s = remedies["compute_s"] - found["gradients"][-1]["ready_s"]
    step_s = {one["flags"]: one["step_s"] for one in remedies["predicted"]}
    for name, one in found["predicted"].items():
        flags = "" if name == "threshold" else f"--fusion {name}"
        assert step_s[flags] == pytest.approx(rest_s + one["finish_s"])
    # Two data types: two messages at least, each with its round.
    assert remedies["communication_s"] == pytest.approx(2 * (0.1 + COORDINATION_S))
    assert step_s["--exchange pipelined"] == remedies["compute_s"]
    assert remedies["recommended"] == "--exchange pipelined"


def moved(change: Callable[[trace.Collective], trace.Collective], everywhere: bool = False) -> trace.Trace:
    """The trace with the last message of each step changed, or all of them."""

    def of_step(step: trace.Step) -> trace.Step:
        before, last = step.collectives[:-1], step.collectives[-1:]
        return replace(step, collectives=(*(map(change, before) if everywhere else before), *map(change, last)))

    whole = recorded()
    return trace.Trace(whole.size, tuple(replace(one, steps=tuple(map(of_step, one.steps))) for one in whole.ranks))


def test_nothing_is_recommended_where_the_prediction_misses_what_was_measured(folder: Path) -> None:
    # The last message of every step ends later than its cost predicts, by 60 % of the whole. It waited before it began,
    # as after traffic that a trace does not have; its cost is the same.
    late_s = 0.6 * values()["measured"]["finish_s"]
    late = moved(lambda last: replace(last, start_s=last.start_s + late_s, end_s=last.end_s + late_s))
    trace.write(late, folder / "trace.json")
    result = invoke("trace.json", "-o", "plan.json")
    assert result.exit_code == 0, result.output
    assert "Recommended" not in result.stdout
    assert "Nothing is recommended: threshold, Horovod's own merging, is predicted to take" in result.stdout
    assert "It may be worse than no plan: threshold" in " ".join(result.stderr.split())
    remedies = values()["remedies"]
    assert remedies["recommended"] is None
    assert "no prediction can be relied on" in remedies["withheld"]
    # The trace has no data about another network.
    assert "Recommended" in invoke("trace.json", "--cost", "0.1,0").stdout


def test_coordination_below_zero_is_not_hidden(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "coordination round is not known" not in invoke("trace.json").stdout
    monkeypatch.setattr(from_trace, "_coordination_s", lambda *_: -1e-4)
    assert "The coordination round is not known and taken for 0" in invoke("trace.json").stdout
    assert "not known" not in invoke("trace.json", "--coordination-ms", "1").stdout
    assert values()["coordination_known"] is False


def test_traces_whose_steps_have_no_time_or_overlap(folder: Path) -> None:
    whole = recorded()
    gaps = trace.Trace(whole.size, tuple(replace(one, steps=one.steps[::2]) for one in whole.ranks))
    trace.write(gaps, folder / "trace.json")
    assert "Remedies are not compared" in invoke("trace.json").stdout
    assert values()["remedies"] is None
    # Each message ends a second later than it did: after the next step has begun.
    trace.write(moved(lambda each: replace(each, end_s=each.end_s + 1), everywhere=True), folder / "trace.json")
    result = invoke("trace.json", "--cost", "1e-3,0")
    assert "Computation: at most 1000.00 ms" in result.stdout, result.output
    assert values("--cost", "1e-3,0")["remedies"]["overlaps"] is True


def test_costs_can_be_given_and_horovods_own_settings_change_threshold_only() -> None:
    free = values("--cost", "0,0", "--coordination-ms", "0")
    assert free["predicted"]["none"]["exposed_s"] == 0
    groups = values("--cost", "1e3,0")["groups"]
    assert [len(group["tensors"]) for group in groups] == [5, 2], "one message for each data type"
    ring = values("--algorithm", "ring", "--ranks", "5", "--alpha", "1e-3", "--beta", "2e-9", "--gamma", "1e-9")
    assert ring["costs"] == {"a_s": pytest.approx(8e-3), "b_s_per_byte": pytest.approx(4e-9), "points": []}
    assert values("--algorithm", "ring", "--alpha", "1e-3", "--beta", "0")["costs"]["a_s"] == pytest.approx(4e-3)
    assert [size for size, _ in values("--curve")["costs"]["points"]] == sorted(SIZES)
    assert "measured in the trace" not in invoke("trace.json", "--cost", "1,1").stdout
    # Horovods own settings change threshold only.
    plain = values()
    alone = values("--threshold-mb", "0")
    lazy = values("--cycle-time-ms", "40")
    assert alone["predicted"]["threshold"]["messages"] == len(NAMES)
    assert lazy["predicted"]["threshold"]["messages"] < plain["predicted"]["threshold"]["messages"]
    assert alone["predicted"]["optimal"] == plain["predicted"]["optimal"] == lazy["predicted"]["optimal"]


def test_collectives_are_listed_where_the_network_is_given(folder: Path) -> None:
    given = ("--algorithm", "ring", "--ranks", "5", "--alpha", "1e-6", "--beta", "2e-9")
    shown = invoke("trace.json", *given).stdout
    assert "Collectives among 5 ranks" in shown and "parameter server" in shown
    listed = values(*given)["collectives"]
    assert listed[0]["name"] == "ring" and len(listed) == 6
    assert listed[0]["communication_s"]["single"] < listed[-1]["communication_s"]["single"]
    assert values()["collectives"] == [] and "Collectives" not in invoke("trace.json").stdout
    # A network that was probed takes the place of constants and costs.
    network = probed()
    network_file.write(network, folder / "network.json")
    assert values("--network", "network.json")["costs"]["points"] == [[4.0, 8e-3], [float(1 << 20), 0.06]]
    theory = values("--network", "network.json", "--algorithm", "ring")
    constants = ("--ranks", "3", "--alpha", str(network.alpha_s), "--beta", str(network.beta_s_per_byte))
    assert theory["costs"] == values("--algorithm", "ring", *constants)["costs"]
    assert values("--network", "network.json", "--algorithm", "ring", "--alpha", "0")["costs"]["a_s"] == 0
    refused(invoke("trace.json", "--network", "network.json", "--cost", "1,1"), "--cost and --network exclude")


def test_armed_steps_and_plans_that_are_written_and_followed_again() -> None:
    costs = ("--cost", "0.012,1e-9")
    negotiated, armed = values(*costs), values(*costs, "--armed")
    assert (negotiated["armed"], armed["armed"]) == (False, True)
    for policy, one in armed["predicted"].items():
        # Two types: a single group of them is the first one. It pays as ever.
        same = policy in ("threshold", "single")
        assert (one["finish_s"] == negotiated["predicted"][policy]["finish_s"]) == same, policy
        assert one["finish_s"] <= negotiated["predicted"][policy]["finish_s"]
    # `optimal` allows messages more time than is predicted here, so another policy may be expected to end sooner.
    finishes = {policy: one["finish_s"] for policy, one in armed["predicted"].items()}
    assert finishes[armed["best"]] == min(finishes.values())
    assert finishes["optimal"] < negotiated["predicted"]["optimal"]["finish_s"]
    assert armed["groups"][-1]["end_s"] == finishes["optimal"]
    result = invoke("trace.json", *costs, "--armed", "-o", "plan.json")
    assert result.exit_code == 0, result.output
    assert "their first group alone pays a coordination round" in result.stdout
    assert "Recommended: `paceline run --fusion optimal`" in result.stdout
    assert "PACELINE_FUSION=file:plan.json PACELINE_DEBUG=armed=yes follows it" in " ".join(result.stderr.split())
    assert invoke("trace.json", *costs, "--armed").output == invoke("trace.json", *costs).output
    assert "armed" not in invoke("trace.json", *costs, "--no-armed").output
    # Written plan is followed again.
    result = invoke("trace.json", "--policy", "plan_policies:pairs", "-o", "plan.json")
    assert result.exit_code == 0, result.output
    assert "PACELINE_FUSION=file:plan.json" in result.stderr
    again = values("--policy", "file:plan.json")
    assert again["policy"] == "file:plan.json"
    pairs = [list(NAMES[at : at + 2]) for at in range(0, len(NAMES), 2)]
    assert [group["tensors"] for group in again["groups"]] == pairs
    first = values("--policy", "plan_policies:pairs")["predicted"]["plan_policies:pairs"]
    assert again["predicted"]["file:plan.json"] == first


@pytest.mark.parametrize(
    ("words", "phrases"),
    [
        (["trace.json", "--policy", "plan_policies:forgetful"], ["forgetful omits the tensor fc.weight"]),
        (["trace.json", "--policy", "threshold", "-o", "plan.json"], ["threshold makes no plan"]),
        (["trace.json", "-o", "absent/plan.json"], ["cannot be written"]),
        (["trace.json", "--plot", "plan.docx"], ["plan.docx cannot be written"]),
        (["trace.json", "--cost", "1ms"], ["'1ms'", "A,B"]),
        (["trace.json", "--cost", "1,-1"], ["cannot be -1.0"]),
        (["trace.json", "--cost", "1,1", "--curve"], ["--cost and --curve exclude each other"]),
        (["trace.json", "--cost", "1,1", "--algorithm", "ring"], ["--cost and --algorithm exclude each other"]),
        (["trace.json", "--alpha", "1"], ["--alpha", "only with --algorithm"]),
        (["trace.json", "--algorithm", "ring"], ["needs the network's constants", "--alpha"]),
        (["trace.json", "--algorithm", "rink", "--alpha", "1", "--beta", "1"], ["Did you mean ring?"]),
        (["trace.json", "--algorithm", "ring", "--ranks", "0", "--alpha", "1", "--beta", "1"], ["at least one"]),
        (["trace.json", "--coordination-ms", "nan"], ["--coordination-ms nan"]),
        (["trace.json", "--threshold-mb", "inf"], ["--threshold-mb inf"]),
        (["trace.json", "--network", "none.json"], ["none.json cannot be read"]),
    ],
)
def test_what_is_refused(words: list[str], phrases: list[str]) -> None:
    refused(invoke(*words), *phrases)


# The picture.

GRADIENTS = (Gradient("third", 300, 0.001), Gradient("second", 100, 0.004), Gradient("first", 100, 0.008))


ALONE: dict[str, Any] = {"coordination_s": 0.0, "cycle_s": 0.0, "threshold_bytes": 0}


def plans(names: str, gradients: Sequence[Gradient], a_s: float, b_s: float = 0.0, **more: Any) -> dict[str, Plan]:
    costs = CostModel.linear(a_s, b_s)
    return {name: make_plan(resolve(name), gradients, costs, **ALONE, **more) for name in names.split()}


def bars(figure: Figure) -> list[tuple[float, float, float]]:
    """Height of the lane's middle, left edge and width of every bar, in ms; without the backward pass."""
    found = [bar for bar in figure.axes[0].containers if isinstance(bar, BarContainer)][1:]
    patches = [patch for bar in found for patch in bar.patches]
    return [(one.get_y() + one.get_height() / 2, one.get_x(), one.get_width()) for one in patches]


def test_messages_are_cut_where_the_backward_pass_ends() -> None:
    figure = plan_plot.plan_figure(GRADIENTS, plans("none optimal", GRADIENTS, 0.004, 1e-5))
    # none: 1..8, 8..13, 13..18 ms; optimal: 1..8, 8..14 ms; the backward pass ends at 8.
    none, optimal = [bar for bar in bars(figure) if bar[0] > 0.5], [bar for bar in bars(figure) if bar[0] < 0.5]
    assert none == [pytest.approx(bar) for bar in [(1, 1, 7), (1, 8, 5), (1, 13, 5)]]
    assert optimal == [pytest.approx(bar) for bar in [(0, 1, 7), (0, 8, 6)]]
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["backward pass", "none", "optimal (best)"]
    labels = [text.get_text() for text in axes.texts]
    assert "14 ms, 6 exposed\n2 messages" in labels and labels.count("300 B") == 2
    assert axes.get_xlabel() == "ms since the first gradient of the step"
    # A message across the end has two colours.
    gradients = (Gradient("a", 100, 0.0), Gradient("b", 100, 0.002))
    figure = plan_plot.plan_figure(gradients, plans("none", gradients, 0.003))
    assert bars(figure) == [pytest.approx(bar) for bar in [(0, 0, 2), (0, 2, 1), (0, 3, 3)]]
    patches = [patch for bar in figure.axes[0].containers if isinstance(bar, BarContainer) for patch in bar.patches][1:]
    colours = [patch.get_facecolor() for patch in patches]
    assert colours[0] != colours[1] == colours[2]
    # Messages of armed steps begin at 1, 4 and 8 ms and end at 8, 9 and 13: drawn one after another.
    armed = plans("none", GRADIENTS, 0.004, 1e-5, armed=True)
    assert bars(plan_plot.plan_figure(GRADIENTS, armed)) == [
        pytest.approx(bar) for bar in [(0, 1, 7), (0, 8, 1), (0, 9, 4)]
    ]


def test_lane_that_goes_on_far_beyond_the_others_is_cut_off() -> None:
    gradients = tuple(Gradient(f"g{place}", 100, 1e-3) for place in range(9))
    figure = plan_plot.plan_figure(gradients, plans("none single optimal", gradients, 0.010))
    axes = figure.axes[0]  # none ends at 91 ms, the others at 11
    assert axes.get_xlim()[1] == pytest.approx(22, rel=0.02)
    arrows: list[Any] = [line for line in axes.lines if line.get_marker() == ">"]
    assert [list(line.get_xydata()[0]) for line in arrows] == [pytest.approx([22, 2])]
    assert "91 ms, 90 exposed\n9 messages" in [text.get_text() for text in axes.texts]
    # Everything may be ready at once.
    gradients = (Gradient("a", 0, 0.0),)
    figure = plan_plot.plan_figure(gradients, plans("single", gradients, 0.0))
    assert "0 ms, 0 exposed\n1 message" in [text.get_text() for text in figure.axes[0].texts]


def test_picture_has_a_lane_for_every_policy(folder: Path) -> None:
    result = invoke("trace.json", "--plot", "plan.png", "--policy", "plan_policies:pairs")
    assert result.exit_code == 0, result.output
    height, width, _ = imread(folder / "plan.png").shape
    assert (width, height) == (1560, round(120 * (1.9 + 0.8 * 7)))
