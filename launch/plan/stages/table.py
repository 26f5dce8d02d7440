"""A schedule as text: stages as rows and ticks as columns, as in the papers; and a row of figures for each stage."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from paceline.launch.plan.stages.rows import Row
from paceline.stages.delays import paper_delays
from paceline.stages.instructions import Kind
from paceline.stages.schedule import Schedule
from paceline.stages.simulate import Simulation, Timed

COLOURS = ("blue", "magenta", "green", "yellow")  # of mini-batches, in turn
IDLE = "."
UPDATED = "*"
TINY = 1e-9  # ticks: larger than rounding errors of floating-point sums
PIPEMARE_TAUS = ("pipedream", "pipemare", "pipemare_eager")  # schedules in the paper's table of delays


def ticks_texts(shown: Simulation, width: int) -> list[Text]:
    """Return the schedule as lines that fit `width`, split into as many parts as needed.

    A cell shows the pass and the number of its micro-batch. `*` after a BACKWARD marks a weight update.
    """
    ticks = math.ceil(shown.end_s - TINY)
    last = shown.steps * shown.schedule.microbatches - 1
    cell = max(len(f"F{last}") + len(UPDATED), len(str(ticks))) + 1
    label = len(f"stage {shown.schedule.stages - 1}") + 1
    # At least one tick, however narrow the terminal is.
    per_part = max(1, (width - label) // cell)
    rows = [_cells(timed, ticks, cell, shown.schedule.microbatches) for timed in shown.stages]
    parts = []
    for first in range(0, ticks, per_part):
        here = range(first, min(first + per_part, ticks))
        text = Text("tick".ljust(label), style="dim")
        text.append("".join(str(tick).ljust(cell) for tick in here).rstrip())
        for stage, row in enumerate(rows):
            text.append(f"\n{f'stage {stage}'.ljust(label)}", style="not dim bold")
            for tick in here:
                text.append_text(row[tick])
        text.append("\n")
        parts.append(text)
    return parts


def _cells(timed: Sequence[Timed], ticks: int, width: int, microbatches: int) -> list[Text]:
    cells = [Text(IDLE.ljust(width), style="dim") for _ in range(ticks)]
    for place, one in enumerate(timed):
        instruction = one.instruction
        if instruction.kind is Kind.UPDATE:
            continue
        updated = place + 1 < len(timed) and timed[place + 1].instruction.kind is Kind.UPDATE
        number = instruction.minibatch * microbatches + instruction.microbatch
        name = f"{instruction.kind.name[0]}{number}"
        colour = COLOURS[instruction.minibatch % len(COLOURS)]
        style = f"not dim {colour}" if instruction.kind is Kind.FORWARD else f"not dim {colour} reverse"
        # Passes take whole ticks. They may begin within one if transfers take a part of one.
        start = math.floor(one.start_s + TINY)
        end = start + round(one.end_s - one.start_s)
        for tick in range(start, end):
            mark = UPDATED if updated and tick == end - 1 else ""
            cells[tick] = Text.assemble((name, style), (mark, "not dim bold"), " " * (width - len(name + mark)))
    return cells


def stages_table(schedule: Schedule, rows: Sequence[Row]) -> Table:
    """Return a table with a row per stage."""
    title = f"{schedule.name}: {schedule.summary}; P = {schedule.stages}, N = {schedule.microbatches}"
    table = Table(title=title, title_justify="left")
    table.add_column("stage", justify="right")
    papers = paper_delays(schedule.stages, schedule.microbatches) if schedule.name in PIPEMARE_TAUS else None
    headers = ["tau forward", "tau backward", *(["paper's tau"] if papers else [])]
    for header in (*headers, "alpha lambda", "busy", "weights", "activations"):
        table.add_column(header, justify="right")
    for row in rows:
        cells = [f"{row.tau_forward:.4g}", f"{row.tau_backward:.4g}"]
        if papers:
            cells.append(f"{papers[row.stage]:.4g}")
        cells += [f"< {row.stable_below:.4g}", f"{row.utilisation:.1%}", str(row.weight_copies), str(row.activations)]
        table.add_row(str(row.stage), *cells)
    return table


def remarks(shown: Simulation) -> list[str]:
    """Explain the table's columns, and report figures of the whole schedule."""
    schedule = shown.schedule
    share = sum(shown.utilisation()) / schedule.stages
    steps = "1 step" if shown.steps == 1 else f"{shown.steps} steps"
    texts = [
        "tau: updates between a pass and the one that applies its gradient, mean over micro-batches. alpha lambda: "
        "learning rate times curvature for which that is stable. Busy: once the pipeline is full. Weights, "
        "activations: copies and micro-batches that are kept, at most.",
        f"These {steps} with filling and draining: {shown.end_s:g} ticks, stages compute {share:.1%} of them.",
    ]
    if schedule.loss_lag:
        texts.append(f"A step returns the loss of {schedule.loss_lag} before, so that no stage waits for it.")
    return texts
