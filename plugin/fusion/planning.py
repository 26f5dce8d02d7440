"""From gradients and costs to a plan: call the policy, check its groups, and predict the times of all policies."""

from __future__ import annotations

import operator
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from paceline.core import _core
from paceline.core._core import CostModel
from paceline.errors import UserError
from paceline.fusion.gradient import Gradient, check, in_order
from paceline.fusion.halves import gathers, in_shares, of_one_kind
from paceline.fusion.parts import first_whole, whole, with_parts
from paceline.fusion.policies import Policy
from paceline.registry.policies import BUILT_IN, OPTIMAL, THRESHOLD

TIME_LIMIT_S = 10.0


@dataclass(frozen=True)
class Predicted:
    """Prediction for a policy.

    Attributes:
        finish_s: seconds from the step's first gradient to the end of the last message.
        exposed_s: the part of it after the last gradient.
        messages: number of messages.
    """

    finish_s: float
    exposed_s: float
    messages: int


@dataclass(frozen=True)
class Plan:
    """Groups in order of sending, and their predictions.

    Attributes:
        policy: name of the chosen policy.
        groups: indices in `names`. A gradient that is sent in parts is alone in that many groups (parts.py).
        names: names of the gradients, in the order given.
        predicted: predictions for the chosen policy and every built-in one.
        starts_s: start of each group's message under the chosen policy.
        ends_s: end of each group's message under the chosen policy.
        armed: the plan is for armed steps, and has the two groups that these need.
    """

    policy: str
    groups: list[list[int]]
    names: list[str]
    predicted: dict[str, Predicted]
    starts_s: list[float]
    ends_s: list[float]
    armed: bool = False

    @property
    def named_groups(self) -> list[list[str]]:
        """The groups as names."""
        return [[self.names[index] for index in group] for group in self.groups]


class PolicyFailed(UserError):
    """A user's policy made no usable plan; training continues with Horovod's own merging."""


@dataclass(frozen=True)
class _Task:
    """Input of the planner and of its predictions."""

    gradients: Sequence[Gradient]
    costs: CostModel
    coordination_s: float
    cycle_s: float
    threshold_bytes: int
    max_group_bytes: int
    armed: bool
    work_s: float
    stock_costs: CostModel

    @property
    def columns(self) -> tuple[list[float], list[float], list[int]]:
        return _columns(self.gradients)

    @property
    def with_rounds(self) -> CostModel:
        """Cost of a message with the coordination round before it."""
        return self.costs.plus(self.coordination_s)

    def predict(self, groups: list[list[int]]) -> _core.Prediction:
        work_s = self.work_s if self.armed else None
        return predict(groups, self.gradients, self.costs, self.coordination_s, work_s=work_s)


def _columns(gradients: Sequence[Gradient]) -> tuple[list[float], list[float], list[int]]:
    """Return sizes in bytes, readiness and types of the gradients."""
    return (
        [float(gradient.bytes) for gradient in gradients],
        [gradient.ready_s for gradient in gradients],
        [gradient.type for gradient in gradients],
    )


def predict(
    groups: list[list[int]],
    gradients: Sequence[Gradient],
    costs: CostModel,
    coordination_s: float,
    *,
    work_s: float | None,
) -> _core.Prediction:
    """Predict the start and end of a plan's messages.

    Arguments as for `make_plan`; `work_s` None: steps are not armed. Raises ValueError for invalid groups.
    """
    columns = _columns(gradients)
    if work_s is not None:
        return _core.predict_armed(groups, *columns, costs, coordination_s, _core.TOGETHER, work_s)
    return _core.predict(whole(groups), *columns, costs.plus(coordination_s))


def make_plan(
    policy: Policy,
    gradients: Sequence[Gradient],
    costs: CostModel,
    *,
    coordination_s: float,
    cycle_s: float,
    threshold_bytes: int,
    time_limit_s: float = TIME_LIMIT_S,
    max_group_bytes: int = 0,
    armed: bool = False,
    work_s: float = 0.0,
    stock_costs: CostModel | None = None,
) -> Plan:
    """Return the plan of `policy`, with predictions for it and for all built-in policies.

    Args:
        policy: the policy. A plan of policy `threshold` is only a prediction.
        gradients: the gradients to merge.
        costs: cost of one message without the coordination that precedes it.
        coordination_s: time of one coordination round, which each message pays.
        cycle_s: Horovod's cycle time, for its own merging.
        threshold_bytes: Horovod's fusion threshold, for its own merging.
        time_limit_s: time limit of a user's function.
        max_group_bytes: limit for groups of several tensors; 0: no limit.
        armed: arm the steps of a plan with two groups or more. Only the first group pays rounds then, and later
            messages overlap, except for `work_s` of each start-up (core/fusion/armed_messages.h). `optimal` is the best
            plan under these costs; other policies are called as usual. Gradients after the first group may be sent in
            parts; without `armed` they are whole.
        work_s: the part of a start-up that is processors' work.
        stock_costs: cost of messages under Horovod's own merging, if plans use another collective.

    Raises:
        UserError: for invalid input; it names the tensor or value.
        PolicyFailed: if a user's policy raises, is too slow, repeats, omits or invents a tensor, or makes an empty or
            too large group.
    """
    check(gradients)
    try:
        task = _Task(
            gradients,
            costs,
            coordination_s,
            cycle_s,
            threshold_bytes,
            max_group_bytes,
            armed,
            work_s,
            stock_costs or costs,
        )
        plans = {name: _built_in(name, task) for name in BUILT_IN}
    except ValueError as error:
        raise UserError(
            f"No plan can be made: {error}.", "Correct that value: times are seconds, finite and at least 0."
        ) from None
    if policy.function is None:
        groups, prediction = plans[policy.name]
    else:
        groups = _users(policy, gradients, task.with_rounds, time_limit_s, max_group_bytes)
        groups = first_whole(groups) if armed else whole(groups)
        groups = of_one_kind(groups, gradients)
        prediction = task.predict(groups)
    predicted = {name: _predicted(task, *plan) for name, plan in plans.items()}
    predicted[policy.name] = _predicted(task, groups, prediction)
    names = [gradient.name for gradient in gradients]
    arms = armed and policy.name != THRESHOLD and len(groups) > 1
    return Plan(policy.name, groups, names, predicted, prediction.starts_s, prediction.ends_s, arms)


def _built_in(name: str, task: _Task) -> tuple[list[list[int]], _core.Prediction]:
    columns = task.columns
    if name == THRESHOLD:
        return _core.predict_stock(*columns, task.stock_costs, task.coordination_s, task.cycle_s, task.threshold_bytes)
    # All-gathers become ready when all other messages have ended; so they are grouped separately.
    late = gathers(task.gradients)
    groups = _groups(name, task, sorted(set(range(len(task.gradients))) - set(late)))
    groups += in_shares(late, task.gradients, task.costs) if name == OPTIMAL else _groups(name, task, late)
    groups = of_one_kind(groups, task.gradients)
    return groups, task.predict(groups)


def _groups(name: str, task: _Task, indices: list[int]) -> list[list[int]]:
    """Return the groups of a built-in policy for some of the gradients."""
    if not indices:
        return []
    columns = _columns([task.gradients[index] for index in indices])
    if task.armed and name == OPTIMAL:
        limit_bytes = task.max_group_bytes
        groups = _core.plan_armed(*columns, task.costs, task.coordination_s, _core.TOGETHER, limit_bytes, task.work_s)
    else:
        groups = _core.plan(name, *columns, task.with_rounds, max_group_bytes=task.max_group_bytes)
    return [[indices[place] for place in group] for group in groups]


def _predicted(task: _Task, groups: list[list[int]], prediction: _core.Prediction) -> Predicted:
    # A group has one message for each type of tensor.
    messages = sum(len({task.gradients[index].type for index in group}) for group in groups)
    return Predicted(prediction.finish_s, prediction.exposed_s, messages)


def _users(
    policy: Policy, gradients: Sequence[Gradient], costs: CostModel, time_limit_s: float, max_group_bytes: int
) -> list[list[int]]:
    function = policy.function
    assert function is not None
    ordered = [gradients[index] for index in in_order(gradients, range(len(gradients)))]
    given = _within(policy, lambda: _lists(policy, function(tuple(ordered), costs)), time_limit_s)
    indices = {gradient.name: index for index, gradient in enumerate(gradients)}
    groups = [
        [_index(policy, member, number, ordered, indices) for member in group] for number, group in enumerate(given)
    ]
    _check_groups(policy, groups, gradients, max_group_bytes)
    if policy.keeps_order:
        return groups
    groups = [in_order(gradients, group) for group in groups]
    return sorted(groups, key=lambda group: (gradients[group[-1]].ready_s, group[-1]))


def _failed(policy: Policy, problem: str, remedy: str) -> PolicyFailed:
    return PolicyFailed(f"The fusion policy {policy.name} {problem}.", remedy)


def _within(policy: Policy, work: Callable[[], list[list[object]]], time_limit_s: float) -> list[list[object]]:
    """Return the result of `work`, from its own thread, because Python cannot end a function that does not return."""
    results: list[list[list[object]]] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            results.append(work())
        except BaseException as error:  # also sys.exit() in a policy must be reported
            errors.append(error)

    thread = threading.Thread(target=body, name=f"fusion policy {policy.name}", daemon=True)
    thread.start()
    thread.join(time_limit_s)
    if errors:
        error = errors[0]
        if isinstance(error, PolicyFailed):
            raise error
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise _failed(
            policy,
            f"raised {type(error).__name__}: {error} ({where.filename}, line {where.lineno})",
            "Correct the function; `paceline plan TRACE --policy ...` tries it without a training run.",
        ) from error
    if not results:
        raise _failed(
            policy,
            f"took longer than {time_limit_s:g} s",
            "Make it faster: it runs while training goes on, and should take milliseconds.",
        )
    return results[0]


def _lists(policy: Policy, given: object) -> list[list[object]]:
    remedy = "Return a list of groups, each a list of gradient names or of indices in the list it was given."
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise _failed(policy, f"returned {given!r:.60}, no groups", remedy)
    groups: list[list[object]] = []
    for number, group in enumerate(given):
        if isinstance(group, str) or not isinstance(group, Iterable):
            raise _failed(policy, f"returned {group!r:.60} as group {number}", remedy)
        groups.append(list(group))
    return groups


def _index(policy: Policy, member: object, number: int, ordered: Sequence[Gradient], indices: dict[str, int]) -> int:
    """Return the index of a member of group `number` in the gradients that the planner was given."""
    if isinstance(member, str):
        if member in indices:
            return indices[member]
        raise _failed(
            policy,
            f"has a tensor {member} in group {number}, which this model does not reduce",
            _remedy(policy, f"The first of its {len(ordered)} tensors is {ordered[0].name}."),
        )
    try:
        index = None if isinstance(member, bool) else operator.index(member)  # type: ignore[arg-type]
    except TypeError:
        index = None
    if index is None or not 0 <= index < len(ordered):
        raise _failed(
            policy,
            f"has {member!r:.60} in group {number}",
            f"Give names or whole numbers from 0 to {len(ordered) - 1}.",
        )
    return indices[ordered[index].name]


def _check_groups(policy: Policy, groups: list[list[int]], gradients: Sequence[Gradient], max_group_bytes: int) -> None:
    once = _remedy(policy, "Put every tensor into exactly one group, or alone into several that follow one another.")
    group_of: dict[int, int] = {}
    number = 0
    for group, parts in with_parts(groups):
        if not group:
            raise _failed(policy, f"made an empty group, number {number}", _remedy(policy, "Leave empty groups out."))
        for index in group:
            if index in group_of:
                where = f"groups {group_of[index]} and {number}" if group_of[index] != number else f"group {number}"
                raise _failed(policy, f"repeats the tensor {gradients[index].name}, in {where}", once)
            group_of[index] = number
        size_bytes = sum(gradients[index].bytes for index in group)
        if len(group) > 1 and 0 < max_group_bytes < size_bytes:
            raise _failed(
                policy,
                f"made group {number} (from tensor {gradients[group[0]].name} on) of {size_bytes:,} bytes; "
                f"{max_group_bytes:,} are allowed",
                _remedy(policy, "Make smaller groups, or raise that limit."),
            )
        number += parts
    missing = [gradient.name for index, gradient in enumerate(gradients) if index not in group_of]
    if missing:
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise _failed(policy, f"omits the tensor {missing[0]}{others}", once)


def _remedy(policy: Policy, for_function: str) -> str:
    if policy.keeps_order:  # a plan from a file
        return "That plan was made for another model: record this one and write a new plan with `paceline plan`."
    return for_function
