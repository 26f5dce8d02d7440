"""`paceline plan TRACE`: predictions of every merging and exchange from a recorded trace, and a plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paceline import config
from paceline.errors import UserError
from paceline.launch import console
from paceline.registry.policies import BUILT_IN, OPTIMAL

if TYPE_CHECKING:
    from rich.table import Table

    from paceline.collectives.network_file import NetworkFile
    from paceline.core._core import CostModel
    from paceline.fusion.from_trace import Measurements
    from paceline.fusion.planning import Plan

# Horovod's defaults.
CYCLE_TIME_MS = 1.0
THRESHOLD_MB = 128.0
MEGABYTE = 1024 * 1024
MOST_NAMES = 2  # of a group, in the table
STOCK = "threshold"
FITTED = "fitted to"
ARMED = (
    "Plans of several groups are predicted with armed steps: their first group alone pays a coordination round, and "
    "start-ups of the messages behind it overlap."
)


@click.command("trace", epilog="`paceline plan stages --help`: what the stages of a pipeline do when.")
@click.argument("trace_path", metavar="TRACE", type=Path)
@click.option(
    "--policy",
    metavar="POLICY",
    default="optimal",
    show_default=True,
    help=f"Whose plan to show: {', '.join(BUILT_IN)}, one of your own as module:function, or file:PLAN.json.",
)
@click.option("-o", "--output", type=Path, help="Write that plan; `paceline run --fusion file:PLAN.json` follows it.")
@click.option("--plot", "picture", type=Path, help="Draw backward pass and messages of all policies (PNG, PDF, SVG).")
@click.option(
    "--perfetto", "timeline", metavar="FILE", type=Path,
    help="Write the recorded steps as a Chrome trace, for https://ui.perfetto.dev (.json, .json.gz).",
)  # fmt: skip
@click.option(
    "--horovod-timeline", "horovods", metavar="FILE", type=Path,
    help="With --perfetto: include this timeline, which Horovod wrote in the recorded run.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON in place of tables.")
@click.option("--cost", metavar="A,B", help="Cost of a message in place of the measured: seconds, seconds per byte.")
@click.option("--curve", is_flag=True, help="Cost as a curve through the measured medians, in place of a line.")
@click.option(
    "--algorithm",
    help="Cost of a message in theory, for this all-reduce: ring, binary-tree, double-binary-trees, "
    "recursive-doubling, recursive-halving-doubling.",
)
@click.option(
    "--network",
    "network_path",
    type=Path,
    help="Cost of a message on the network of this file, which `paceline probe` wrote: a curve through what allreduces"
    " took there by PACELINE_COLLECTIVE; with --algorithm its alpha, beta and ranks, unless given.",
)
@click.option("--ranks", type=int, help="Ranks for --algorithm. [default: those of the trace]")
@click.option("--alpha", type=float, help="For --algorithm: start-up of one message between two ranks, seconds.")
@click.option("--beta", type=float, help="For --algorithm: seconds to move a byte.")
@click.option("--gamma", type=float, help="For --algorithm: seconds to add a byte. [default: 0]")
@click.option(
    "--armed/--no-armed", default=True, show_default=True,
    help="Predict armed steps, which `--fusion optimal` has, where a plan can have them.",
)  # fmt: skip
@click.option(
    "--workers",
    metavar="N,N|N:N",
    help="Predict the step of every setting for these numbers of workers in place of all else, such as 2,4,64 or "
    "1:4096 (powers of two), with --cost, --network, or --alpha and --beta; --ranks: among which --cost holds.",
)
@click.option(
    "--late",
    metavar="FILE|FORM",
    help="With --workers: lateness of workers in seconds, normal:MEAN,SD, exponential:MEAN, one:RANK,SECONDS, "
    "random:SECONDS (one random worker in each step), or a CSV file with columns step, rank and seconds.",
)
@click.option(
    "--kineto", metavar="FILE", type=Path,
    help="TRACE is an execution trace of PyTorch, and this the trace of torch.profiler of the same steps.",
)  # fmt: skip
@click.option("--coordination-ms", type=float, help="One coordination round. [default: measured]")
@click.option("--cycle-time-ms", default=CYCLE_TIME_MS, show_default=True, help="Horovod's cycle time.")
@click.option("--threshold-mb", default=THRESHOLD_MB, show_default=True, help="Horovod's fusion threshold, MiB.")
def trace_command(
    trace_path: Path,
    policy: str,
    output: Path | None,
    picture: Path | None,
    timeline: Path | None,
    horovods: Path | None,
    as_json: bool,
    armed: bool,
    coordination_ms: float | None,
    cycle_time_ms: float,
    threshold_mb: float,
    network_path: Path | None,
    workers: str | None,
    late: str | None,
    kineto: Path | None,
    **cost_flags: Any,
) -> None:
    """Predict from a trace how long each way of merging gradients would take: `paceline plan trace.json`.

    TRACE is what `paceline record` wrote; nothing is run. Prints for each policy when the last gradient would have been
    reduced and how much of that time is exposed, that is, after the backward pass; then what a step would take with
    each remedy, and which is worth it; with --algorithm, all collectives side by side; then the plan of one policy, a
    row per message. Costs are fitted to the trace unless --cost or --algorithm gives them. docs/guides/planning.md
    explains the model.
    """
    for name, value in (("--cycle-time-ms", cycle_time_ms), ("--coordination-ms", coordination_ms or 0.0)):
        if not 0 <= value < float("inf"):
            raise UserError(f"{name} {value:g} cannot be used.", "Give milliseconds of at least 0.")
    if not 0 <= threshold_mb < float("inf"):
        raise UserError(f"--threshold-mb {threshold_mb:g} cannot be used.", "Give MiB of at least 0; 0: merge nothing.")
    if horovods is not None and timeline is None:
        raise UserError("--horovod-timeline has a meaning only with --perfetto.", "Add --perfetto FILE.")
    if late is not None and workers is None:
        raise UserError("--late has a meaning only with --workers.", "Add --workers N,N.")
    from paceline.collectives import network_file
    from paceline.fusion import from_trace, plan_file, planning, policies
    from paceline.fusion.resolve import resolve
    from paceline.launch.plan import collectives as plan_collectives
    from paceline.launch.plan import remedies as plan_remedies
    from paceline.launch.plan import scaling as plan_scaling
    from paceline.launch.record import command as record
    from paceline.predict import collectives, execution_trace

    chosen = resolve(policy)  # a wrong name is refused before the trace is read
    counts = None if workers is None else plan_scaling.numbers(workers)
    recorded = from_trace.load(trace_path) if kineto is None else execution_trace.load(trace_path, kineto)
    if timeline is not None:
        record.write_timeline(recorded, timeline, horovods)
    measured = from_trace.measure(recorded, cycle_time_ms / 1e3)
    probed = None if network_path is None else network_file.load(network_path)
    if counts is not None:
        if output is not None:
            raise UserError("--workers and --output exclude each other.", "Write the plan of one number of ranks.")
        scaling = plan_scaling.of_trace(
            recorded,
            measured,
            plan_scaling.network(measured, probed, **cost_flags),
            coordination_ms,
            cost_flags["ranks"],
            late,
            cycle_time_ms / 1e3,
            int(threshold_mb * MEGABYTE),
        )
        plan_scaling.show(scaling, counts, trace_path, picture, as_json)
        return
    if probed is not None and cost_flags["algorithm"] is not None:
        constants = {"ranks": probed.ranks, "alpha": probed.alpha_s, "beta": probed.beta_s_per_byte}
        cost_flags |= {name: value for name, value in constants.items() if cost_flags[name] is None}
    costs, origin = _costs(measured, probed, **cost_flags)
    network = _network(measured, **cost_flags)
    coordination_s = measured.coordination_s if coordination_ms is None else coordination_ms / 1e3

    def make(wanted: policies.Policy, costs: CostModel = costs, armed: bool = armed) -> Plan:
        return planning.make_plan(
            wanted,
            measured.gradients,
            costs,
            coordination_s=coordination_s,
            cycle_s=cycle_time_ms / 1e3,
            threshold_bytes=int(threshold_mb * MEGABYTE),
            armed=armed,
        )

    def finish_of(costs: CostModel, armed: bool) -> dict[str, float]:
        predicted = make(resolve(OPTIMAL), costs, armed).predicted
        return {name: predicted[name].finish_s for name in BUILT_IN}

    plan = make(chosen)
    # Given costs are those of another network: measurements on this one do not apply.
    doubt = plan_remedies.doubt(measured, plan.predicted) if origin.startswith(FITTED) else ""
    if output is not None:
        if not chosen.makes_plans:
            raise UserError(
                f"The policy {chosen.name} makes no plan that could be written: Horovod merges what is ready.",
                "Choose another --policy, or leave --output out.",
            )
        plan_file.write(output, plan.policy, plan.named_groups)
        variables = f"PACELINE_FUSION=file:{output}" + (" PACELINE_DEBUG=armed=yes" if plan.armed else "")
        console.note(f"The plan: {output}; {variables} follows it.")
        if doubt:
            console.note(f"It may be worse than no plan: {doubt}.")
    if picture is not None:
        from paceline.launch.plan import plot as plan_plot
        from paceline.launch.record import plot

        plans = {name: plan if name == plan.policy else make(resolve(name)) for name in BUILT_IN}
        plans[plan.policy] = plan
        plot.save(plan_plot.plan_figure(measured.gradients, plans), picture)
        console.note(f"Backward pass and messages: {picture}")
    among = measured.ranks if network is None else network[0]
    remedies = plan_remedies.compare(recorded, measured, costs, coordination_s, among, finish_of, doubt, armed)
    compared = []
    if remedies is not None and network is not None:
        compared = collectives.compare(remedies.recorded.iteration, *network, coordination_s)
    if as_json:
        result = as_values(trace_path, measured, plan, costs, coordination_s)
        result |= {"armed": armed, "cycle_s": cycle_time_ms / 1e3, "threshold_bytes": int(threshold_mb * MEGABYTE)}
        result["remedies"] = plan_remedies.as_values(remedies)
        result["collectives"] = plan_collectives.as_values(compared)
        click.echo(json.dumps(result))
        return
    out = console.out()
    own_costs = origin.startswith(FITTED)
    out.print(comparison_table(trace_path, measured, plan, own_costs))
    out.print(
        f"Cost of a message: {_cost_text(costs)}, {origin}; one coordination round: {1e3 * coordination_s:.3g} ms.",
        soft_wrap=True,
    )
    if armed:
        out.print(ARMED, soft_wrap=True)
    if coordination_ms is None and not measured.coordination_known:
        out.print(
            "The coordination round is not known and taken for 0: the recorded messages began sooner after their last "
            f"tensor than half of Horovod's cycle of {cycle_time_ms:g} ms lets expect, or none found the network idle. "
            "Give the recording's --cycle-time-ms, or --coordination-ms.",
            soft_wrap=True,
        )
    for name, reason in measured.left_out.items():
        out.print(f"Left out: {name}, {reason}.", markup=False, soft_wrap=True)
    if remedies is not None:
        out.print(plan_remedies.remedies_table(remedies, own_costs))
    for text in plan_remedies.texts(remedies) if remedies else (plan_remedies.UNKNOWN,):
        out.print(text, markup=False, soft_wrap=True)
    if network is not None and compared:
        out.print(plan_collectives.collectives_table(compared, network[0]))
    out.print(plan_table(measured, plan))


def _costs(
    measured: Measurements,
    probed: NetworkFile | None,
    cost: str | None,
    algorithm: str | None,
    ranks: int | None,
    alpha: float | None,
    beta: float | None,
    gamma: float | None,
    curve: bool,
) -> tuple[CostModel, str]:
    """Return the requested cost model, and its origin; raises UserError for contradictory flags."""
    from paceline.fusion import costs

    given = {"--cost": cost, "--algorithm": algorithm, "--curve": curve}
    asked = [flag for flag, value in given.items() if value]
    if probed is not None and algorithm is None:
        asked.append("--network")
    if len(asked) > 1:
        raise UserError(f"{' and '.join(asked)} exclude each other.", "Give one of them.")
    if algorithm is None:
        network = {"--ranks": ranks, "--alpha": alpha, "--beta": beta, "--gamma": gamma}
        for flag, value in network.items():
            if value is not None:
                raise UserError(f"{flag} has a meaning only with --algorithm.", "Add --algorithm, or leave it out.")
    elif alpha is None or beta is None:
        raise UserError(
            f"--algorithm {algorithm} needs the network's constants.",
            "Add --alpha SECONDS and --beta SECONDS_PER_BYTE.",
        )
    else:
        ranks = measured.ranks if ranks is None else ranks
        return costs.of_algorithm(algorithm, ranks, alpha, beta, gamma or 0.0), f"{algorithm} among {ranks} ranks"
    if cost is not None:
        return costs.parse(cost), "as given"
    if probed is not None:
        collective = config.read().collective
        return costs.fit(probed.samples(collective), measured=True), f"as `paceline probe` measured {collective}"
    count = len(measured.samples)
    return costs.fit(measured.samples, measured=curve), f"{FITTED} {count} messages of the trace"


def _network(
    measured: Measurements,
    algorithm: str | None,
    ranks: int | None,
    alpha: float | None,
    beta: float | None,
    gamma: float | None,
    **_: Any,
) -> tuple[int, float, float, float] | None:
    """Return ranks, alpha, beta and gamma if --algorithm requests theory, after `_costs` has checked them."""
    if algorithm is None or alpha is None or beta is None:
        return None
    return measured.ranks if ranks is None else ranks, alpha, beta, gamma or 0.0


def _cost_text(costs: CostModel) -> str:
    from paceline.fusion.costs import text

    return text(costs)


def comparison_table(path: Path, measured: Measurements, plan: Plan, beside_measured: bool = True) -> Table:
    """Return a table with a row per policy, and one for the measurement, unless costs are not those of the trace."""
    from rich.table import Table

    tensors, steps = len(measured.gradients), measured.steps
    size_mb = sum(gradient.bytes for gradient in measured.gradients) / 1e6
    title = f"{path}: {tensors} gradients, {size_mb:.4g} MB, {measured.ranks} ranks, {steps} steps"
    table = Table(title=title, title_justify="left")
    table.add_column("policy", overflow="fold")
    for column in ("finish", "exposed", "messages", "finish to threshold's"):
        table.add_column(column, justify="right")
    stock_s = plan.predicted[STOCK].finish_s
    best_s = min(one.finish_s for one in plan.predicted.values())
    for name, one in plan.predicted.items():
        best = one.finish_s <= best_s * (1 + 1e-9)
        table.add_row(
            name + (" (best)" if best else ""),
            *_times(one.finish_s, one.exposed_s),
            str(one.messages),
            _ratio(one.finish_s, stock_s),
            style="bold" if best else None,
        )
    if not beside_measured:
        return table
    exposed_s = measured.finish_s - measured.gradients[-1].ready_s
    table.add_section()
    table.add_row(
        "measured in the trace",
        *_times(measured.finish_s, exposed_s),
        f"{measured.messages:g}",
        _ratio(measured.finish_s, stock_s),
    )
    return table


def _times(finish_s: float, exposed_s: float) -> tuple[str, str]:
    return f"{1e3 * finish_s:.2f} ms", f"{1e3 * exposed_s:.2f} ms"


def _ratio(finish_s: float, stock_s: float) -> str:
    return f"{finish_s / stock_s:.3f}" if stock_s > 0 else "-"


def plan_table(measured: Measurements, plan: Plan) -> Table:
    """Return a table with a row per merge group: its tensors from the first ready to the last, and its times."""
    from rich.table import Table

    from paceline.launch.record.plot import size_text

    table = Table(title=f"Plan of {plan.policy}, times in ms since the first gradient", title_justify="left")
    for column, justify in (("group", "right"), ("tensors", "right"), ("names", "left")):
        table.add_column(column, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for column in ("size", "ready", "start", "end"):
        table.add_column(column, justify="right", no_wrap=True)
    for number, group in enumerate(_groups(measured, plan)):
        names = group["tensors"]
        shown = names if len(names) <= MOST_NAMES else [names[0], "...", names[-1]]
        table.add_row(
            str(number),
            f"1/{group['parts']}" if group["parts"] > 1 else str(len(names)),
            " ".join(shown),
            size_text(group["bytes"]),
            *(f"{1e3 * group[key]:.2f}" for key in ("ready_s", "start_s", "end_s")),
        )
    return table


def _groups(measured: Measurements, plan: Plan) -> list[dict[str, Any]]:
    """Return the plan's groups as JSON values; `parts`: number of parts that its tensor is split into."""
    from paceline.fusion.parts import parts_of

    groups = []
    for group, parts, start_s, end_s in zip(
        plan.groups, parts_of(plan.groups), plan.starts_s, plan.ends_s, strict=True
    ):
        members = [measured.gradients[index] for index in group]
        groups.append(
            {
                "tensors": [gradient.name for gradient in members],
                "parts": parts,
                "bytes": sum(gradient.bytes for gradient in members) // parts,
                "ready_s": max(gradient.ready_s for gradient in members),
                "start_s": start_s,
                "end_s": end_s,
            }
        )
    return groups


def as_values(
    path: Path, measured: Measurements, plan: Plan, costs: CostModel, coordination_s: float
) -> dict[str, Any]:
    """Return everything as JSON values; times in seconds."""
    from paceline.fusion.costs import to_json

    predicted = {
        name: {"finish_s": one.finish_s, "exposed_s": one.exposed_s, "messages": one.messages}
        for name, one in plan.predicted.items()
    }
    return {
        "trace": str(path),
        "ranks": measured.ranks,
        "steps": measured.steps,
        "gradients": [
            {"name": one.name, "bytes": one.bytes, "ready_s": one.ready_s, "dtype": one.dtype}
            for one in measured.gradients
        ],
        "left_out": measured.left_out,
        "costs": to_json(costs),
        "coordination_s": coordination_s,
        "coordination_known": measured.coordination_known,
        "measured": {"finish_s": measured.finish_s, "messages": measured.messages},
        "predicted": predicted,
        "best": min(predicted, key=lambda name: predicted[name]["finish_s"]),
        "policy": plan.policy,
        "groups": _groups(measured, plan),
    }
