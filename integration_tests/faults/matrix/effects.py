"""The table of docs/reliability.md: what each fault causes, with measured times."""

from __future__ import annotations

from collections.abc import Sequence

from integration_tests.faults.matrix.sentences import Action, Moment
from integration_tests.faults.matrix.summary import Line

_NAMED = "every other rank raises an error that names the rank"
EFFECTS = {
    Action.KILL: f"a rank is killed: {_NAMED}, with its process and host",
    Action.STOP: f"a rank stops, or its machine hangs: {_NAMED}, after `HOROVOD_GLOO_TIMEOUT_SECONDS` and 3 s",
    Action.PAUSE: "a rank stops, and goes on before that limit: training goes on, weights are right",
    Action.EXCEPTION: f"the script of a rank raises an exception: {_NAMED} and the exception",
    Action.MEMORY: f"an allocation fails on a rank: {_NAMED} and MemoryError",
    Action.DISK: "a disk is full: training goes on; the last complete checkpoint stays; a history ends with a warning",
    Action.SHAPE: "a tensor has another shape on one rank: all ranks raise an error with both shapes",
    Action.INTERRUPT: f"Ctrl-C (SIGINT) on one rank: {_NAMED} and KeyboardInterrupt",
    Action.CUT: "the link of a host is cut: every rank raises an error that names a lost rank, after the limit and 3 s",
    Action.SLOW: "the link of a host becomes slow: training goes on, weights are right",
}
RESET = "a rank is killed, stops or raises while an elastic job resets: the job goes on, weights are right"
INIT = "a rank is lost while ranks connect: the others raise an error, at most 5 times the limit later"


def page_table(lines: Sequence[Line]) -> str:
    """Rows of Markdown: effect, cases, worst time to an error."""
    rows = ["| fault and effect | cases | longest time to an error |", "| --- | --- | --- |"]
    apart = (Moment.INIT, Moment.RESET)
    for action, effect in EFFECTS.items():
        chosen = [line for line in lines if line.case.fault.action is action and line.case.fault.moment not in apart]
        rows += _row(effect, chosen)
    rows += _row(INIT, [line for line in lines if line.case.fault.moment is Moment.INIT])
    rows += _row(RESET, [line for line in lines if line.case.fault.moment is Moment.RESET])
    return "\n".join(rows) + "\n"


def _row(effect: str, lines: Sequence[Line]) -> list[str]:
    times = [line.worst_s for line in lines if line.worst_s is not None]
    return [f"| {effect} | {len(lines)} | {f'{max(times):.2f} s' if times else ''} |"] if lines else []
