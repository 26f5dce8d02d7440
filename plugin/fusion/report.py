"""hvd.fusion_report(): current state of merging, its expected times and its measured times."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.fusion.armed import OTHER_SET, ArmedReport
from paceline.fusion.control import chosen
from paceline.fusion.driver import State
from paceline.fusion.offer import EXPECTED


@dataclass(frozen=True)
class FusionReport:
    """Merging in one process set, on this rank; times in seconds, sizes in bytes, None if unknown (yet).

    A message of n bytes takes a_s + b_s_per_byte * n after one coordination round of `coordination_s`, as measured
    before this plan. If armed steps are wanted, `predicted_step_s` and `predicted_exposed_s` are those of armed steps.

    Attributes:
        policy: policy of this rank; "threshold" is Horovod's own merging.
        state: "off"; "active" (a plan is followed); "waiting" on ranks other than the first. The first rank also has
            the states of `paceline.fusion.driver`: "agreeing", "warming", "sweeping", "measuring", "offering",
            "trying", "stock", "refused".
        reason: why there is no plan ("stock", "refused").
        version: number of the plan, 0 before the first.
        groups: names of the tensors of each message, in order of sending. A tensor that armed steps send in parts is
            alone in that many groups.
        group_bytes: size of each message.
        a_s: start-up of a message.
        b_s_per_byte: time per byte of a message.
        coordination_s: time of one coordination round.
        predicted_step_s: predicted step.
        predicted_exposed_s: predicted communication after the last gradient.
        predicted_stock_step_s: predicted step under Horovod's own merging.
        measured_step_s: median over the last `steps` steps of this rank.
        measured_exposed_s: median of the communication after the last gradient, over the same steps.
        steps: number of steps of these medians.
        timeouts: groups that were released incomplete, because no gradient came for gate_timeout_ms
            (docs/reference/options.md).
        trial: on the first rank, the result of the comparison with Horovod's own merging (`paceline.fusion.trial`).
        armed: state of armed steps (`paceline.fusion.armed`).
    """

    policy: str
    state: str
    reason: str = ""
    version: int = 0
    groups: list[list[str]] = field(default_factory=list)
    group_bytes: list[int] = field(default_factory=list)
    a_s: float | None = None
    b_s_per_byte: float | None = None
    coordination_s: float | None = None
    predicted_step_s: float | None = None
    predicted_exposed_s: float | None = None
    predicted_stock_step_s: float | None = None
    measured_step_s: float | None = None
    measured_exposed_s: float | None = None
    steps: int = 0
    timeouts: int = 0
    trial: str = ""
    armed: ArmedReport = field(default_factory=ArmedReport)


def report(library: str, process_set: int = 0) -> FusionReport:
    """Return this rank's report; `library` is "torch" or "tensorflow", whose Horovod must be loaded (ValueError)."""
    from paceline.native.library import loaded

    control = chosen(loaded(library))
    if control is None or control.policy is None or not control.policy.makes_plans:
        return FusionReport("threshold", "off")
    bridge = control.bridge
    plan, status, driver = bridge.plan(process_set), bridge.status(process_set), control.drivers.get(process_set)
    if plan is None or status is None:
        return FusionReport(control.policy.name, "off", f"there is no process set {process_set} on this rank")
    if driver is not None and driver.serial != status.serial:
        driver = None  # it belongs to an earlier process set with this id
    groups: list[list[str]] = [[] for _ in range(max(plan.group_of, default=-1) + 1)]
    group_bytes, parts = [0] * len(groups), [1] * len(groups)
    for tensor, group, parts_of in zip(plan.tensors, plan.group_of, plan.parts_of, strict=False):
        if group >= 0:
            groups[group].append(tensor.name)
            group_bytes[group] += tensor.bytes
            parts[group] = parts_of
    sent = [
        (names, size_bytes // times)
        for names, size_bytes, times in zip(groups, group_bytes, parts, strict=True)
        for _ in range(times)
    ]
    waiting = driver.state.value if driver else "waiting"
    on_trial = driver is not None and driver.trial is not None and not driver.trial.over
    state = State.TRYING.value if on_trial else "active" if plan.active else waiting
    expected = dict(zip(EXPECTED, plan.expected, strict=False)) if plan.active else {}
    own = bridge.own(process_set)
    return FusionReport(
        policy=control.policy.name,
        state=state,
        reason=driver.reason if driver else "",
        version=plan.version,
        groups=[names for names, _ in sent],
        group_bytes=[size_bytes for _, size_bytes in sent],
        a_s=expected.get("a_s"),
        b_s_per_byte=expected.get("b_s_per_byte"),
        coordination_s=expected.get("coordination_s"),
        predicted_step_s=expected.get("step_s"),
        predicted_exposed_s=expected.get("exposed_s"),
        predicted_stock_step_s=expected.get("stock_step_s"),
        measured_step_s=own.step_s if own.step_s >= 0 else None,
        measured_exposed_s=own.exposed_s if own.exposed_s >= 0 else None,
        steps=own.steps,
        timeouts=status.expired,
        trial=str(driver.trial) if driver and driver.trial and driver.trial.over else "",
        armed=bridge.armed() if process_set == 0 else ArmedReport(reason=OTHER_SET),
    )
