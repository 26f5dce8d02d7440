"""Verdict on a case."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from integration_tests.faults.matrix.cases import Case
from integration_tests.faults.matrix.jobs import Outcome
from integration_tests.faults.matrix.ranks import Report
from integration_tests.faults.matrix.sentences import Action, Moment
from integration_tests.faults.matrix.training import EXTRA, LABEL, LARGE_ELEMENTS

# Rounding of the division by the number of ranks.
MOST_OFF = 1e-4
OVER_LIMIT_S = 1.0
# Errors that the victim's own script raises.
OWN = {Action.EXCEPTION: "Broken", Action.MEMORY: "MemoryError", Action.INTERRUPT: "KeyboardInterrupt"}
# Faults that cost no rank: all ranks go on with right numbers.
HARMLESS = (Action.PAUSE, Action.DISK, Action.SLOW)
TOO_LATE = "the message had ended"
_BLAMED = re.compile(r"[Rr]ank (\d+) (?:died|\(process|could not go on|has not connected)|Stage (\d+) failed")


@dataclass
class Verdict:
    """Problems found; seconds from the fault to each survivor's error."""

    problems: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def worst_s(self) -> float | None:
        return max(self.seconds, default=None)


def judge(case: Case, found: Outcome) -> Verdict:
    """Compare the outcome of a case with what its fault may cause."""
    verdict = Verdict()
    wrong = verdict.problems
    fault = case.fault
    if found.mark is None:
        wrong.append(f"the fault did not happen{_ends(found)}")
    else:
        wrong += _wrong_moment(case, found.mark)
    wrong += [f"rank {rank} hung" for rank in found.hung]
    wrong += [f"process left behind: {one}" for one in found.left]
    wrong += [f"history: {one}" for one in found.violations[:5]]
    if fault.moment is not Moment.INIT:
        if found.checkpoint < 0:
            wrong.append("no checkpoint can be loaded")
        elif found.checkpoint_off > MOST_OFF:
            wrong.append(f"the checkpoint of step {found.checkpoint} is off by {found.checkpoint_off}")
    for rank in range(case.size):
        report = found.reports.get(rank)
        if report is None:
            may_be_silent = rank == fault.victim and (fault.action is Action.KILL or rank in found.ended)
            if not may_be_silent and rank not in found.hung:
                wrong.append(f"rank {rank} left no report")
            continue
        if report.off is not None and report.off > MOST_OFF:
            wrong.append(f"rank {rank} ended with weights that are off by {report.off}")
        if rank == fault.victim:
            wrong += _wrong_victim(case, report)
        else:
            wrong += _wrong_survivor(case, report, verdict, found)
    return verdict


def _ends(found: Outcome) -> str:
    ends = (f"rank {one.rank} {one.error}: {one.text}" for one in found.reports.values() if one.error)
    return "".join(f"; {one}" for one in ends)


def _wrong_moment(case: Case, mark: dict[str, object]) -> list[str]:
    """Check that the fault found the job in the state that its sentence says."""
    wrong = []
    moved = mark.get("moved_bytes")
    # An allreduce moves twice this much through a rank: every byte is sent, and as many are received.
    most = 2 * (case.size - 1) / case.size * 4 * LARGE_ELEMENTS
    most *= 2 if case.exchange == "pipelined" else 1  # the message of the step before may be in flight, too
    if isinstance(moved, int) and case.exchange != "stages" and moved > most:
        wrong.append(f"{TOO_LATE}: {mark}")
    if case.armed and "armed" in mark and (mark["armed"] not in ("armed", "running") or not mark["armed_steps"]):
        wrong.append(f"steps were not armed: {mark}")
    return wrong


def _wrong_victim(case: Case, report: Report) -> list[str]:
    action = case.fault.action
    if action in HARMLESS:
        return [f"the victim raised {report.error}: {report.text}"] if report.error else []
    if action in OWN:
        if not report.error and _may_finish(case):
            return []
        return [] if report.error == OWN[action] else [f"the victim had {report.error or 'no error'}: {report.text}"]
    if action is Action.STOP:
        return (
            [] if report.error or _may_finish(case) else ["the victim, which had stopped, finished as if nothing was"]
        )
    return [] if report.error or _may_finish(case) else ["the victim had no error"]


def _may_finish(case: Case) -> bool:
    """True if survivors may finish without an error: they need the victim no longer."""
    return case.fault.moment is Moment.SHUTDOWN


def _wrong_survivor(case: Case, report: Report, verdict: Verdict, found: Outcome) -> list[str]:
    fault = case.fault
    if fault.action in HARMLESS:
        return [f"rank {report.rank} raised {report.error}: {report.text}"] if report.error else []
    if not report.error:
        return [] if _may_finish(case) else [f"rank {report.rank} had no error"]
    seconds = report.time_s - float((found.mark or {}).get("time_s", report.time_s))
    verdict.seconds.append(seconds)
    wrong = []
    if seconds > case.limit_s + OVER_LIMIT_S:
        wrong.append(f"rank {report.rank} had its error after {seconds:.1f} s, limit {case.limit_s:g} s")
    if fault.action is Action.SHAPE:
        return wrong + _wrong_shape_error(case, report)
    blamed = {int(one or other) for one, other in _BLAMED.findall(report.text)}
    if blamed != {fault.victim}:
        wrong.append(f"rank {report.rank} had an error that names {sorted(blamed) or 'no rank'}: {report.text}")
    return wrong


def _wrong_shape_error(case: Case, report: Report) -> list[str]:
    """The error must name the tensor, the rank, and both shapes."""
    label = f"{LABEL}.1" if case.fault.moment is Moment.INIT else EXTRA
    wrong = []
    # Keras' names of operations have the optimizer and a number in place of the label.
    of_keras = case.framework == "keras" and re.search(r"radient|Tensor \S*\w_\d", report.text) is not None
    if label not in report.text and not of_keras:
        wrong.append(f"the error of rank {report.rank} does not name the tensor {label}: {report.text}")
    if f"ank {case.fault.victim}" not in report.text:
        wrong.append(f"the error of rank {report.rank} does not name rank {case.fault.victim}: {report.text}")
    if len(set(re.findall(r"\[(\d+)\]", report.text))) < 2:
        wrong.append(f"the error of rank {report.rank} does not show both shapes: {report.text}")
    return wrong
