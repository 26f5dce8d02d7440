"""From gradients to a checked plan: by hand, as MG-WFBP's paper has it, and all that a user's policy can do wrong."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.errors import UserError
from paceline.fusion import CostModel, Gradient, costs, plan_file
from paceline.fusion.planning import Plan, PolicyFailed, make_plan
from paceline.fusion.resolve import resolve
from paceline.registry.policies import BUILT_IN

# The counter-example to MG-WFBP's optimality: start-up 4, one second per byte, ready at 1, 4 and 8.
GRADIENTS = (Gradient("third", 3, 1.0), Gradient("second", 1, 4.0), Gradient("first", 1, 8.0))
COSTS = CostModel.linear(4.0, 1.0)


def planned(policy: Any, gradients: Any = GRADIENTS, model: CostModel = COSTS, **options: Any) -> Plan:
    given = {"coordination_s": 0.0, "cycle_s": 0.0, "threshold_bytes": 0} | options
    return make_plan(resolve(policy), gradients, model, **given)


def test_all_built_in_policies_by_hand() -> None:
    plan = planned("optimal")
    assert plan.named_groups == [["third"], ["second", "first"]]
    assert (plan.starts_s, plan.ends_s) == ([1.0, 8.0], [8.0, 14.0])
    finishes = {name: one.finish_s for name, one in plan.predicted.items()}
    assert finishes == {"threshold": 18.0, "none": 18.0, "single": 17.0, "mgwfbp": 17.0, "optimal": 14.0}
    assert plan.predicted["optimal"].exposed_s == 6.0
    messages = {name: one.messages for name, one in plan.predicted.items()}
    assert messages == {"threshold": 3, "none": 3, "single": 1, "mgwfbp": 2, "optimal": 2}
    # Tensors of two types are counted as two messages.
    mixed = [Gradient("half", 2, 0.0, "float16", 1), Gradient("full", 4, 0.0), Gradient("other half", 2, 0.0, "x", 1)]
    plan = planned("single", mixed)
    assert plan.predicted["single"].messages == 2
    assert plan.ends_s == [4 + 4 + 4 + 4]


def test_every_message_pays_one_round_and_those_of_armed_steps_pay_one_together() -> None:
    negotiated = planned("none", coordination_s=0.5)
    assert negotiated.ends_s == [1 + 7.5, 1 + 7.5 + 5.5, 1 + 7.5 + 5.5 + 5.5]
    plan = planned("none", coordination_s=0.5, armed=True)
    assert plan.armed
    assert (plan.starts_s, plan.ends_s) == ([1.0, 4.0, 8.5], [8.5, 9.5, 13.5])
    # Policies without a plan of several groups are not armed.
    for policy in ("threshold", "single"):
        alone = planned(policy, coordination_s=0.5)
        assert planned(policy, coordination_s=0.5, armed=True) == replace(alone, predicted=plan.predicted)
        assert plan.predicted[policy] == negotiated.predicted[policy]
    mgwfbp = planned("mgwfbp", coordination_s=0.5, armed=True)
    assert mgwfbp.groups == planned("mgwfbp", coordination_s=0.5).groups


def test_gradients_of_a_policy_may_go_in_parts_where_steps_are_armed() -> None:
    def parts(gradients: Any, model: CostModel) -> list[list[str]]:
        return [["third"], ["third"], ["second"], ["second"], ["second"], ["first"]]

    plan = planned(parts, armed=True)
    # The first group is negotiated, and whole; nothing overlaps but start-ups, of messages of a third of a byte.
    assert plan.named_groups == [["third"], ["second"], ["second"], ["second"], ["first"]]
    assert plan.starts_s == pytest.approx([1.0, 4.0, 8.0, 8 + 1 / 3, 12 + 1 / 3])
    assert plan.ends_s == pytest.approx([8.0, 8 + 1 / 3, 12 + 1 / 3, 12 + 2 / 3, 17 + 1 / 3])
    assert plan.predicted["parts"].messages == 5
    whole = planned(parts)
    assert (whole.named_groups, whole.armed) == ([["third"], ["second"], ["first"]], False)
    assert whole.ends_s == planned("none").ends_s


def test_optimal_in_armed_steps() -> None:
    mega = 1 << 20
    gradients = [Gradient("a", 20 * mega, 0.0), Gradient("b", 20 * mega, 0.1), Gradient("c", 1000, 0.2)]
    model = CostModel.linear(1e-3, 1e-8)
    plan = planned("optimal", gradients, model, armed=True)
    assert plan.named_groups == [["a"], ["b"], ["b"], ["b"], ["c"]]
    assert planned("optimal", gradients, model).named_groups == [["a"], ["b", "c"]]
    # Rounds and start-ups are expensive in sequence, and cheap if they overlap.
    gradients = [Gradient(str(n), size, ready_s) for n, (size, ready_s) in enumerate([(1, 0.0), (9, 6.0), (9, 9.0)])]
    negotiated, armed = planned("optimal", gradients), planned("optimal", gradients, armed=True)
    assert negotiated.named_groups == [["0"], ["1", "2"]]
    assert armed.named_groups == [["0"], ["1"], ["2"]]
    assert (negotiated.ends_s, armed.ends_s) == ([5.0, 31.0], [5.0, 19.0, 28.0])
    assert armed.predicted["optimal"].messages == 3
    # A round so long that nothing is worth it: one message, which is not armed.
    dear = CostModel.linear(4.0, 0.0)
    single = planned("optimal", [replace(one, ready_s=0.0) for one in gradients], dear, coordination_s=9.0, armed=True)
    assert (single.groups, single.ends_s, single.armed) == ([[0, 1, 2]], [13.0], False)
    # Groups of several gradients in armed steps have at most 8 MiB.
    sizes = [3 << 20, 20 << 20, 5 << 20, 5 << 20, 3 << 20]
    gradients = [Gradient(str(n), size, float(n)) for n, size in enumerate(sizes)]
    slow = CostModel.linear(0.1, 1e-6)
    plan = planned("optimal", gradients, slow, armed=True)
    # A larger gradient is sent alone. The link is saturated, so that fewer groups would be as good otherwise.
    assert all(len(group) == 1 or sum(sizes[n] for n in group) <= 8 << 20 for group in plan.groups), plan.groups
    assert max(map(len, plan.groups)) > 1
    # And in parts, if that is more than 8 MiB.
    alone = planned("optimal", gradients, slow, armed=True, max_group_bytes=1 << 20)
    assert alone.groups == [[0], [1], [1], [1], [2], [3], [4]]


def test_threshold_is_predicted_as_horovod_merges_also_by_a_collective_of_other_costs() -> None:
    # One cycle begins at 4 and finds two tensors, the next at 8.5 + 8 and finds the last.
    plan = planned("threshold", coordination_s=0.5, cycle_s=4.0, threshold_bytes=100)
    assert plan.named_groups == [["third", "second"], ["first"]]
    assert plan.starts_s == [4.5, 4.5 + 8 + 0.5]
    assert planned("threshold", cycle_s=4.0, threshold_bytes=3).named_groups == [["third"], ["second"], ["first"]]
    # Horovods own merging may go by a collective of other costs.
    plan = planned("optimal", armed=True, stock_costs=CostModel.linear(9.0, 1.0))
    same = planned("optimal", armed=True)
    assert plan.predicted["threshold"].finish_s == 1.0 + 12 + 10 + 10
    assert plan.predicted["optimal"] == same.predicted["optimal"]
    assert same.predicted["threshold"].finish_s == 18.0


@pytest.mark.parametrize("armed", [False, True])
def test_user_policy_sees_gradients_in_order_of_readiness_and_the_cost_of_a_round(armed: bool) -> None:
    seen: list[Any] = []

    def watching(gradients: Any, model: CostModel) -> Any:
        seen.append((gradients, model(0), threading.current_thread()))
        return [[2], [1, 0]]

    plan = planned(watching, GRADIENTS[::-1], coordination_s=0.25, armed=armed)
    given, start_up_s, thread = seen[0]
    assert (given, start_up_s, thread.daemon) == (GRADIENTS, 4.25, True)
    assert (plan.policy, plan.names) == ("watching", ["first", "second", "third"])
    assert plan.named_groups == [["third", "second"], ["first"]]  # by readiness within, then by the last member's
    assert plan.groups == [[2, 1], [0]]  # places in the order given
    assert plan.predicted["watching"].messages == 2
    assert set(plan.predicted) == {*BUILT_IN, "watching"}


@pytest.mark.parametrize(
    "groups",
    [
        [["first", "third"], ["second"]],
        [[2, 0], ["second"]],
        [(np.int64(1),), {0, 2}],
        (iter([group]) if isinstance(group, int) else group for group in [1, ["third", "first"]]),
    ],
    ids=["names", "both", "numpy and sets", "generator"],
)
def test_names_and_places_in_any_sequence(groups: Any) -> None:
    assert planned(lambda gradients, model: groups).named_groups == [["second"], ["third", "first"]]


def raising(gradients: Any, model: CostModel) -> Any:
    raise KeyError("conv7.weight")


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (raising, ["policy raising raised KeyError: 'conv7.weight'", Path(__file__).name, "line "]),
        (lambda gradients, model: sys.exit(3), ["raised SystemExit: 3"]),
        (lambda gradients, model: None, ["returned None"]),
        (lambda gradients, model: "all", ["returned 'all'"]),
        (lambda gradients, model: ["first", "second"], ["returned 'first' as group 0"]),
        (lambda gradients, model: [0, 1, 2], ["returned 0 as group 0"]),
        (lambda gradients, model: [[0, 1], [2], []], ["empty group, number 2"]),
        (lambda gradients, model: [], ["omits the tensor third and 2 more"]),
        (lambda gradients, model: [[0], [1]], ["omits the tensor first."]),
        (lambda gradients, model: [[0, 1], [2, 1]], ["repeats the tensor second, in groups 0 and 1"]),
        (lambda gradients, model: [[0, 1, 2, "third"]], ["repeats the tensor third, in group 0"]),
        (lambda gradients, model: [["third", "zeroth"]], ["a tensor zeroth in group 0", "does not reduce"]),
        (lambda gradients, model: [[0, 1, 3]], ["has 3 in group 0", "from 0 to 2"]),
        (lambda gradients, model: [[-1, 0, 1]], ["has -1 in group 0"]),
        (lambda gradients, model: [[0, 1.0, 2]], ["has 1.0 in group 0"]),
        (lambda gradients, model: [[False, True, 2]], ["has False in group 0"]),
        (lambda gradients, model: [[gradient] for gradient in gradients], ["Gradient(name='third'", "Give names"]),
    ],
)
def test_policy_that_fails_is_named_with_the_tensor_and_a_remedy(policy: Callable[..., Any], words: list[str]) -> None:
    with pytest.raises(PolicyFailed) as caught:
        planned(policy)
    assert caught.value.problem.startswith(f"The fusion policy {policy.__name__} ")
    for word in words:
        assert word in str(caught.value)
    assert caught.value.remedy


def test_policy_that_takes_too_long_or_makes_a_group_too_large() -> None:
    end = threading.Event()

    def waits_for_ever(gradients: Any, model: CostModel) -> Any:
        end.wait()

    try:
        with pytest.raises(PolicyFailed, match=r"waits_for_ever took longer than 0\.05 s"):
            planned(waits_for_ever, time_limit_s=0.05)
    finally:
        end.set()
    # Policy whose group is too large.
    assert planned(lambda gradients, model: [[0], [1, 2]], max_group_bytes=2).named_groups[1] == ["second", "first"]
    with pytest.raises(PolicyFailed, match=r"group 0 \(from tensor third on\) of 4 bytes; 3 are allowed"):
        planned(lambda gradients, model: [[0, 1], [2]], max_group_bytes=3)


def test_plan_from_a_file_is_followed_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"

    def from_file(*groups: list[str], **options: Any) -> Plan:
        plan_file.write(path, "mine", groups)
        return planned(f"file:{path}", **options)

    plan = from_file(["first", "third"], ["second"])
    assert plan.named_groups == [["first", "third"], ["second"]]
    assert plan.ends_s == [16.0, 21.0]
    parts = (["third"], ["second"], ["second"], ["first"])
    assert from_file(*parts, armed=True).named_groups == [*parts]
    assert from_file(*parts).named_groups == [["third"], ["second"], ["first"]]
    for groups, said in (
        ([["first", "third"]], r"plan\.json omits the tensor second\.(.|\n)*made for another model"),
        ([["first", "third", "second", "bias"]], r"a tensor bias in group 0(.|\n)*made for another model"),
        ([["third"], ["second"], ["third"]], "the tensor third is in group 0 and in group 2"),
        ([["third", "second"], ["third", "second"]], "the tensor third is in group 0 and in group 1"),
    ):
        with pytest.raises(UserError, match=said):
            from_file(*groups)


@pytest.mark.parametrize(
    ("gradients", "options", "words"),
    [
        ([Gradient("bad", -1, 0.0)], {}, "bad has -1 bytes"),
        ([Gradient("bad", 1, float("nan"))], {}, "bad is ready at nan s"),
        ([Gradient("bad", 1, -0.5)], {}, r"bad is ready at -0\.5 s"),
        ([*GRADIENTS, Gradient("first", 1, 0.0)], {}, "first is given twice"),
        ([], {}, "no gradient"),
        *[
            (GRADIENTS, {name: value}, "No plan can be made")
            for name in ("coordination_s", "cycle_s", "threshold_bytes", "max_group_bytes")
            for value in (-1.0, float("nan"))
        ],
    ],
)
def test_input_that_makes_no_sense_is_named(gradients: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        planned("optimal", gradients, **options)


def test_costs_as_text_and_of_an_algorithm() -> None:
    model = costs.parse("1.2e-3, 1.5e-9")
    assert (model.a_s, model.b_s_per_byte) == (1.2e-3, 1.5e-9)
    assert model(200_000) == pytest.approx(1.5e-3)
    assert costs.text(model) == "1.2 ms + 1.5 ns per byte (0.667 GB/s)"
    assert costs.text(costs.linear(0, 0)) == "0 ms + 0 ns per byte"
    curve = costs.fit([(100, 1.0), (300, 2.0)], measured=True)
    assert costs.text(curve).startswith("2 measured sizes, about 500 ms")
    assert costs.to_json(curve)["points"] == [[100, 1.0], [300, 2.0]]
    # Costs of an algorithm.
    model = costs.of_algorithm("ring", 5, 1e-3, 2e-9, 1e-9)
    assert (model.a_s, model.b_s_per_byte) == pytest.approx((8e-3, 4 / 5 * 5e-9))
    assert all(costs.of_algorithm(name, 8, 1e-3, 1e-9, 0.0).a_s > 0 for name in costs.ALGORITHMS)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        *[(lambda text=text: costs.parse(text), "not of the form A,B") for text in ("", "1", "1,2,3", "a,b", "1;2")],
        *[(lambda text=text: costs.parse(text), "of a message cannot be") for text in ("-1,0", "nan,0", "0,inf")],
        (lambda: costs.of_algorithm("rings", 4, 1e-3, 1e-9, 0.0), r"'rings'(.|\n)*Did you mean ring\?"),
        (lambda: costs.of_algorithm("ring", 0, 1e-3, 1e-9, 0.0), "cannot be computed"),
        (lambda: costs.of_algorithm("ring", 4, -1.0, 1e-9, 0.0), "cannot be computed"),
        (lambda: costs.fit([(100, 1.0)] * 3), r"fitted to 3 measured messages(.|\n)*HOROVOD_FUSION_THRESHOLD=0"),
        (lambda: costs.fit([]), "fitted to 0 measured"),
    ],
)
def test_costs_that_make_no_sense(made: Callable[[], object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        made()


def test_example_in_the_documents() -> None:
    page = (Path(__file__).parents[3] / "docs" / "guides" / "planning.md").read_text()
    example = page.partition("## Policies of your own")[2].partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(compile(example.replace('@register("halves")', ""), "planning.md", "exec"), names)
    assert planned(names["halves"]).named_groups == [["third"], ["second", "first"]]
