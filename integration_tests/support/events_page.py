"""docs/developers/events.md: the page that is made from the table of events.

python -m integration_tests.support.events_page > docs/developers/events.md
"""

from __future__ import annotations

from integration_tests.concurrency.table import ACTIVITIES, EXCHANGES, REFUSALS, RULES, SIZES, cases, combinations
from integration_tests.support.events import COLUMNS, EVENTS, Answer, Event


def _row(column: str, answer: Answer) -> str:
    name = f"{column} ({answer.on})" if answer.on else column
    tests = ", ".join(
        f"[{one.partition('::')[2]}](../../integration_tests/{one.partition('::')[0]})" for one in answer.tests
    )
    return f"| {name} | {answer.outcome} | {answer.what} | {tests} |"


def _section(event: Event) -> str:
    rows = [_row(column, answer) for column in COLUMNS for answer in event.cells[column]]
    return "\n".join(
        [f"## {event.name}", "", "| exchange | answer | what happens | tests |", "| --- | --- | --- | --- |", *rows]
    )


def _beside() -> str:
    """The part of the page about activities beside a training."""
    left, rows = cases(), []
    general = [one for one in RULES if len({case.activity for case in combinations() if one.excludes(case)}) > 2]
    for activity, what in ACTIVITIES.items():
        every, own = ([case for case in many if case.activity == activity] for many in (combinations(), left))
        notes = [f"left out: {one.reason}" for one in RULES if one not in general and any(map(one.excludes, every))]
        notes += [f"refused: {one.reason}" for one in REFUSALS if any(map(one.matches, own))]
        rows.append(f"| {activity} | {what} | {'; '.join(notes)} |")
    table, others = "\n".join(rows), "\n".join(f"- Left out: {one.reason}." for one in general)
    return f"""## Beside a training

A script may do more than train while gradients are in flight. {len(left)} cases combine the activities below with the
exchanges, three frameworks (PyTorch, Keras on TensorFlow, Keras on PyTorch), and {SIZES[0]} to {SIZES[-1]} ranks. In
each case steps and acts come in a random order that is equal on all ranks. Every value equals one process.

Exchanges: {"; ".join(EXCHANGES)}.

| activity | what a script does | exceptions |
| --- | --- | --- |
{table}

{others}

    .venv/bin/python -m integration_tests.concurrency --activity join twin --exchange pipelined
    .venv/bin/python -m integration_tests.concurrency                      # everything

The first command runs a part, the second all, about an hour on two cores. `make test` runs a dozen cases, `make
test-more` about ninety, `make soak` all. The table is in `integration_tests/concurrency/table.py`."""


def events_page() -> str:
    sections = "\n\n".join([*map(_section, EVENTS), _beside()])
    return f"""# Events

What happens to a training when a step is skipped, a parameter is frozen, a rank ends early: one table for each event,
one row for each exchange.

| answer | meaning |
| --- | --- |
| works | training goes on; weights are those of one process with the same gradients |
| refused | an error names the rank or the gradient, and the remedy |
| nothing to do | the event does not concern the exchange |

"sync, armed" is the synchronous exchange with [armed steps](../methods/armed.md). The "residual of a codec" is what
error feedback keeps of a gradient ([codecs.md](../methods/codecs.md)). A row without a framework holds for all of them.

The table is in `integration_tests/support/events.py`; `python -m integration_tests.support.events_page` prints this
page, and a test compares them. Tests with ranks take their cases from the table.

{sections}
"""


if __name__ == "__main__":
    print(events_page(), end="")
