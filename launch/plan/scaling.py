"""Part of `paceline plan` with --workers: steps of every setting by the number of workers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paceline.errors import UserError
from paceline.launch import console, outputs

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from paceline.collectives.network_file import NetworkFile
    from paceline.fusion.from_trace import Measurements
    from paceline.predict.scaling import Network, Scaled, Scaling
    from paceline.record.trace import Trace

MOST_WORKERS = 1 << 16
REMEDY = "Give numbers such as 2,4,64, or a range such as 1:4096, which has powers of two."
LOG_FROM = 10  # a picture whose steps differ by this factor has a logarithmic axis
CAPTION = (
    "Weak scaling: each worker does the recorded work. Scaling: throughput over that of workers that exchange nothing. "
    "Exposed: waits for messages and for other workers. Sent: by a ring, the least of all collectives."
)


def numbers(text: str) -> list[int]:
    """Parse `2,4,64` or `1:4096`, which has the powers of two. Raises UserError for other texts."""
    try:
        first, colon, last = text.partition(":")
        if colon:
            low, high = int(first), int(last)
            found = [2**power for power in range(high.bit_length()) if low <= 2**power <= high] if high > 0 else []
        else:
            found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1 or found[-1] > MOST_WORKERS:
        raise UserError(f"--workers {text} are no numbers from 1 to {MOST_WORKERS}.", REMEDY)
    return found


def network(
    measured: Measurements,
    probed: NetworkFile | None,
    cost: str | None,
    algorithm: str | None,
    ranks: int | None,
    alpha: float | None,
    beta: float | None,
    gamma: float | None,
    curve: bool,
) -> Network:
    """Return the constants that the flags give, or those of the trace. Raises UserError for contradictory flags."""
    from paceline.fusion import costs
    from paceline.predict.scaling import Network, of_ring

    if probed is not None and alpha is None and beta is None:
        alpha, beta = probed.alpha_s, probed.beta_s_per_byte
    if curve or (cost is not None and (algorithm, alpha, beta, gamma) != (None,) * 4):
        raise UserError(
            "--workers takes the network from one place.", "Give --cost A,B, --network FILE, or --alpha and --beta."
        )
    if alpha is not None and beta is not None:
        costs.linear(alpha, beta)  # refuses negative values
        return Network(alpha, beta, gamma or 0.0, algorithm)
    if (algorithm, alpha, beta, gamma) != (None,) * 4:
        raise UserError("--workers lacks a constant of the network.", "Give both --alpha and --beta.")
    message = costs.fit(measured.samples) if cost is None else costs.parse(cost)
    return of_ring(message, measured.ranks if ranks is None else ranks)


def of_trace(
    recorded: Trace,
    measured: Measurements,
    network: Network,
    coordination_ms: float | None,
    ranks: int | None,
    late: str | None,
    cycle_s: float,
    threshold_bytes: int,
) -> Scaling:
    """Return the model of a trace. Raises UserError if no recorded step has a time."""
    from paceline.predict import lateness
    from paceline.predict import recorded as recordings
    from paceline.predict.advice import TORCH
    from paceline.predict.scaling import Scaling

    found = recordings.of_trace(recorded, measured, network.stock(measured.ranks))
    if found is None:
        raise UserError(
            "No recorded step is followed by the next one, so none has a time.", "Record a script of more steps."
        )
    known = measured.coordination_known and measured.ranks > 1
    coordination_s, among = measured.coordination_s if known else None, measured.ranks
    if coordination_ms is not None:
        coordination_s, among = coordination_ms / 1e3, measured.ranks if ranks is None else ranks
        if among < 2:
            raise UserError(
                f"A coordination round among {among} rank takes no time.",
                "Give --ranks: the number of ranks of --coordination-ms.",
            )
    return Scaling(
        found,
        measured,
        network,
        coordination_s,
        among,
        split=all(rank.library == TORCH for rank in recorded.ranks),
        lateness=None if late is None else lateness.parse(late),
        cycle_s=cycle_s,
        threshold_bytes=threshold_bytes,
    )


def show(scaling: Scaling, counts: Sequence[int], path: Path, picture: Path | None, as_json: bool) -> None:
    """Predict, draw and print. Raises UserError for a lateness that does not fit the workers."""
    if picture is not None:
        outputs.check_picture(picture)
    found = scaling.over(counts)
    late = "" if scaling.lateness is None else f", workers late by {scaling.lateness.text}"
    title = f"{path}: step by the number of workers{late}"
    if picture is not None:
        from paceline.launch.record import plot

        plot.save(figure(found, title), picture)
        console.note(f"Steps over workers: {picture}")
    if as_json:
        click.echo(json.dumps(as_values(scaling, found)))
        return
    console.out().print(scaling_table(found, title))
    console.out().print(network_text(scaling), soft_wrap=True)


def scaling_table(found: Sequence[Scaled], title: str) -> Table:
    """Return a table with a section per number of workers and a row per setting; the fastest are bold."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", caption=CAPTION, caption_justify="left")
    table.add_column("workers", justify="right")
    table.add_column("setting", overflow="fold")
    for name in ("step", "steps/s", "scaling", "exposed", "sent"):
        table.add_column(name, justify="right", no_wrap=True)
    for at in found:
        table.add_section()
        best_s = min(one.step_s for one in at.settings)
        for number, one in enumerate(at.settings):
            table.add_row(
                "" if number else str(at.workers),
                one.name,
                f"{1e3 * one.step_s:.2f} ms",
                f"{1 / one.step_s:.4g}",
                f"{one.scaling:.1%}",
                f"{1e3 * one.exposed_s:.2f} ms",
                f"{1e-6 * one.sent_bytes:.4g} MB",
                style="bold" if one.step_s <= best_s * (1 + 1e-9) else None,
            )
    return table


def figure(found: Sequence[Scaled], title: str) -> Figure:
    """Draw the steps of each setting over the number of workers."""
    made = outputs.figure(figsize=(9, 4.5), layout="constrained")
    axes = made.add_subplot()
    steps_ms: dict[str, list[float]] = {}
    for at in found:
        for one in at.settings:
            steps_ms.setdefault(one.name, []).append(1e3 * one.step_s)
    for name, values in steps_ms.items():
        axes.plot([at.workers for at in found], values, marker=".", label=name)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    every = [value for values in steps_ms.values() for value in values]
    if max(every) > LOG_FROM * min(every):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel("workers")
    axes.set_ylabel("predicted step, ms")
    axes.set_title(title, loc="left", fontsize=10)
    axes.grid(color="#dddddd")
    made.legend(loc="outside right upper", frameon=False, fontsize=8)
    return made


def network_text(scaling: Scaling) -> str:
    """Return a line about the network and coordination."""
    network, ranks = scaling.network, scaling.ranks
    line = f"Network: alpha {1e6 * network.alpha_s:.3g} us, beta {1e9 * network.beta_s_per_byte:.3g} ns per byte"
    line += f", gamma {1e9 * network.gamma_s_per_byte:.3g} ns per byte" if network.gamma_s_per_byte else ""
    if scaling.coordination_s is None:
        return f"{line}; a coordination round is not known from the trace and modelled (docs/guides/planning.md)."
    return f"{line}; a coordination round of {1e3 * scaling.coordination_s:.3g} ms among {ranks} ranks, scaled."


def as_values(scaling: Scaling, found: Sequence[Scaled]) -> dict[str, Any]:
    """Return everything as JSON values; times in seconds."""
    network = scaling.network
    return {
        "network": {
            "alpha_s": network.alpha_s,
            "beta_s_per_byte": network.beta_s_per_byte,
            "gamma_s_per_byte": network.gamma_s_per_byte,
            "algorithm": network.algorithm,
        },
        "coordination_s": scaling.coordination_s,
        "late": None if scaling.lateness is None else scaling.lateness.text,
        "workers": [
            {
                "workers": at.workers,
                "settings": [
                    {
                        "setting": one.name,
                        "step_s": one.step_s,
                        "scaling": one.scaling,
                        "exposed_s": one.exposed_s,
                        "sent_bytes": one.sent_bytes,
                    }
                    for one in at.settings
                ],
            }
            for at in found
        ],
    }
