"""`paceline plan stages`: passes of each stage of a pipeline over time, delay of its gradients, and costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paceline.errors import UserError
from paceline.launch import console, outputs
from paceline.stages import schedules

if TYPE_CHECKING:
    from paceline.launch.plan.stages.rows import Row
    from paceline.stages.simulate import Simulation

DEFAULT_STEPS = 3
MOST_PASSES = 100_000  # some seconds


@click.command("stages", epilog=f"Schedules: {', '.join(schedules.SCHEDULES)}.")
@click.argument("name", metavar="SCHEDULE")
@click.option("--stages", default=4, show_default=True, help="P, stages of the model.")
@click.option("--microbatches", default=4, show_default=True, help="N, micro-batches of a mini-batch.")
@click.option("--steps", default=DEFAULT_STEPS, show_default=True, help="Mini-batches to show.")
@click.option("--forward", "forward_ticks", default=1, show_default=True, help="Ticks that a forward pass takes.")
@click.option("--backward", "backward_ticks", default=1, show_default=True, help="Ticks that a backward pass takes.")
@click.option("--transfer", "transfer_ticks", type=int, help="Ticks that a result travels.  [default: 0]")
@click.option("--network", "network_path", type=Path, help="Results travel as on the network of this file (probe).")
@click.option("--message", metavar="SIZE", help="With --network: activations of a micro-batch, as 4MiB.")
@click.option("--tick", "tick_ms", type=float, metavar="MS", help="With --network: milliseconds of a tick.")
@click.option("--plot", "picture", type=Path, help="Draw it (PNG, PDF, SVG).")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON in place of tables.")
def stages_command(
    name: str,
    stages: int,
    microbatches: int,
    steps: int,
    forward_ticks: int,
    backward_ticks: int,
    transfer_ticks: int | None,
    network_path: Path | None,
    message: str | None,
    tick_ms: float | None,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Show a schedule of pipeline stages: `paceline plan stages pipemare --stages 4 --microbatches 4`.

    Prints what each stage does in each tick, as the papers draw it, then for each stage how late its gradients are, in
    updates, up to which learning rate that is stable, how busy it is, and how many copies of weights and activations it
    keeps. docs/methods/stages.md explains all of it.
    """
    for option, value, least in (
        ("--steps", steps, 1),
        ("--forward", forward_ticks, 1),
        ("--backward", backward_ticks, 1),
        ("--transfer", transfer_ticks or 0, 0),
    ):
        if value < least:
            raise UserError(f"{option} {value} cannot be used.", f"Give a whole number of at least {least}.")
    schedule = schedules.make(name, stages, microbatches)
    if stages * (steps * microbatches + 6 * (stages + microbatches)) > MOST_PASSES:
        raise UserError(
            f"{steps} steps of {stages} stages with {microbatches} micro-batches are too many to show.",
            "Give smaller numbers.",
        )
    if picture is not None:
        outputs.check_picture(picture)
    _check_together(transfer_ticks, network_path, message, tick_ms)
    from paceline.launch.plan.stages import plot, rows, table, times
    from paceline.launch.record.plot import save

    if network_path is None:
        used = times.Times(forward_ticks, backward_ticks, float(transfer_ticks or 0))
    else:
        used = times.Times(
            forward_ticks, backward_ticks, *times.of_network(network_path, message, tick_ms, schedule.stages)
        )
    shown = used.simulated(schedule, steps)
    of_stages = rows.of_stages(schedule, used)
    if picture is not None:
        save(plot.schedule_figure(shown), picture)
        console.note(f"The schedule: {picture}")
    if as_json:
        click.echo(json.dumps(as_values(shown, of_stages) | used.as_values()))
        return
    out = console.out()
    for part in table.ticks_texts(shown, out.width):
        out.print(part, soft_wrap=True)
    out.print(table.stages_table(schedule, of_stages))
    for text in (*table.remarks(shown), *used.measured):
        out.print(text, markup=False, soft_wrap=True)


def _check_together(transfer: int | None, network: Path | None, message: str | None, tick_ms: float | None) -> None:
    """Raise UserError for contradictory options, and for options of one that was not given."""
    if network is not None and transfer is not None:
        raise UserError("--transfer and --network both say how long results travel.", "Leave one of them out.")
    for option, value in (("--message", message), ("--tick", tick_ms)):
        if network is None and value is not None:
            raise UserError(f"{option} has no effect: it belongs to --network, which was not given.", "Leave it out.")


def as_values(shown: Simulation, of_stages: list[Row]) -> dict[str, Any]:
    """Return everything as JSON values; times in ticks."""
    schedule = shown.schedule
    return {
        "schedule": schedule.name,
        "stages": schedule.stages,
        "microbatches": schedule.microbatches,
        "steps": shown.steps,
        "synchronous": schedule.synchronous,
        "forward_weights": schedule.forward_weights,
        "backward_weights": schedule.backward_weights,
        "loss_lag": schedule.loss_lag,
        "end": shown.end_s,
        "per_stage": [
            {
                **row.as_values(),
                "instructions": [
                    {
                        "kind": one.instruction.kind.value,
                        "minibatch": one.instruction.minibatch,
                        "microbatch": one.instruction.microbatch,
                        "start": one.start_s,
                        "end": one.end_s,
                        "version": one.version,
                    }
                    for one in timed
                ],
            }
            for row, timed in zip(of_stages, shown.stages, strict=True)
        ],
    }
