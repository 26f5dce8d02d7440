"""`paceline probe`: measure the network between ranks, and every collective on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from paceline import config
from paceline.errors import UserError
from paceline.launch import console, flags, horovodrun, hosts, mistakes, outputs, run
from paceline.launch.environment import environment
from paceline.launch.quantities import size_bytes, sizes_bytes
from paceline.launch.ranks import run_python_on

if TYPE_CHECKING:
    from paceline.collectives.network_file import NetworkFile

SIZES = "4,4KiB,64KiB,1MiB,16MiB"
PAIR = "4MiB"
LEAST_PAIR_BYTES = 1024
LIMIT_S = 1800.0
_PROGRAM = ["-m", "paceline.launch.probe.rank"]


@flags.with_options("run", hidden={"record", "network_file"})
@click.command("probe", cls=run.HorovodrunCommand)
@click.option("-o", "--output", type=Path, default=Path("network.json"), show_default=True, help="The file to write.")
@click.option("--plot", "picture", type=Path, help="Also draw a heat map of the pairs (PNG, PDF or SVG).")
@click.option("--sizes", default=SIZES, show_default=True, help="Sizes of messages that collectives are measured on.")
@click.option("--pair-size", default=PAIR, show_default=True, help="Message for the bandwidth between two ranks.")
@click.option("--json", "as_json", is_flag=True, help="Print what is written in place of tables.")
def probe_command(
    output: Path,
    picture: Path | None,
    sizes: str,
    pair_size: str,
    as_json: bool,
    horovodrun_arguments: tuple[str, ...],
    command: tuple[str, ...],
    **values: Any,
) -> None:
    """Measure the network between ranks: `paceline probe -np 4 -H a:1,b:1,c:1,d:1`.

    Latency and bandwidth of all pairs of ranks, and every collective on messages of several sizes. Flags say where the
    ranks are, as with `paceline run`. `paceline plan --network FILE` predicts with it; docs/methods/collectives.md
    explains it.
    """
    from paceline.launch.probe import plot
    from paceline.launch.probe.rank import Order

    if command:
        raise UserError(
            f"`paceline probe` runs a program of its own, not {command[0]}.", "Give flags only: `paceline probe -np 4`."
        )
    order = Order(sizes_bytes(sizes), size_bytes(pair_size))
    if order.pair_bytes < LEAST_PAIR_BYTES:
        raise UserError(f"--pair-size {pair_size} cannot be used.", f"Give {LEAST_PAIR_BYTES} bytes or more.")
    program = ["python", *_PROGRAM]
    asked = horovodrun.parsed(horovodrun_arguments, program)
    named = hosts.asked_for(asked)
    mistakes.check(asked, named, program)
    if asked.num_proc == 1:
        raise UserError("A network cannot be measured on one rank: nothing is sent.", "Give -np 2 or more.")
    outputs.check(output, "the network file")
    if picture is not None:
        outputs.check_picture(picture)
    given = flags.texts(values)
    environ = environment(config.read(flags=given), given)
    environ.pop(f"{config.PREFIX}NETWORK_FILE", None)  # it is measured here and may not exist yet
    with console.err().status("starting the ranks") as status:
        found = _measured(hosts.plain(horovodrun_arguments, asked, named), order, environ, status.update)
    from paceline.collectives import network_file

    network_file.write(found, output)
    if picture is not None:
        plot.save(found, picture)
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(found)))
        return
    for table in plot.tables(found):
        console.out().print(table)
    console.note(f"The network: {output}" + (f"; as a picture: {picture}" if picture is not None else ""))


def _measured(horovodrun_arguments: Any, order: Any, environ: dict[str, str], log: Any) -> NetworkFile:
    """Run the ranks and return the measurements. Raises UserError with their last output if one fails or hangs."""
    from paceline.collectives.network_file import NetworkFile
    from paceline.launch.probe.rank import RESULT, SAID

    results: list[str] = []

    def on_line(line: str) -> None:
        if line.startswith(RESULT):
            results.append(line.removeprefix(RESULT))
        elif line.startswith(SAID):
            log(line.removeprefix(SAID))

    words = [*_PROGRAM, msgspec.json.encode(order).decode()]
    arguments = [*mistakes.cache_arguments(horovodrun_arguments), *horovodrun_arguments]
    run_python_on(arguments, words, environ, LIMIT_S, on_line)
    if not results:
        raise UserError(
            "The ranks told no result.",
            "Give at least two ranks, on standard output that horovodrun passes on: no --output-filename.",
        )
    return msgspec.json.decode(results[0], type=NetworkFile)
