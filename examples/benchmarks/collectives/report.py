"""A comparison of collectives as JSON, with what it was measured on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline.collectives.bounds import BROADCAST, ENCODED, LINEAR, Message, bound_s, bus_factor, known
from paceline.examples.benchmarks.collectives.cases import MODEL
from paceline.examples.benchmarks.collectives.systems import GLOO, CollectiveSystem, plain_of
from paceline.examples.benchmarks.collectives.turns import Comparison, call_s, message_s
from paceline.examples.benchmarks.harness.report import interval, link_bytes, rounded
from paceline.examples.benchmarks.harness.report import ratio as ratio_values
from paceline.examples.benchmarks.harness.stats import median_interval


@dataclass(frozen=True)
class World:
    """Where a comparison was made. Without links `rate` and `bytes_per_s` are None."""

    hosts: int
    ranks: int
    rate: str | None
    bytes_per_s: float | None
    latency: str | None
    latency_s: float
    block_bytes: int


def as_json(
    comparison: Comparison,
    world: World,
    skipped: dict[str, str],
    fewest: dict[str, Any] | None,
    machine: dict[str, Any],
    command: str,
) -> dict[str, Any]:
    """One operation and size, ready for json.dumps. Times in milliseconds; a figure that cannot be given is None.

    Of each system: `call_ms`, from the first rank's call to the last rank's result; `message_ms`, the collective alone,
    on the slowest rank; `bus_bytes_per_s`, what every card has to move at least, whatever the collective, per second
    of the latter; `wire_share` of the link's rate, with values as a codec encodes them; `bound_ms` and
    `bound_share` of the collective's own bound; `cpu_ms_per_call` of a rank; `wire_bytes_per_call`, Ethernet bytes of
    each host's link. `p_growth` is the time of a message over that among the fewest ranks, whose result is `fewest`.
    Ratios are of calls, and, with `_message` at the end, of messages. `broadcast_parameters_ratio`: a model,
    linear over gloo.
    """
    systems = {system.name: _system(comparison, system, world, fewest) for system in comparison.measured}
    return {
        "operation": comparison.operation,
        "size_bytes": comparison.size_bytes,
        "hosts": world.hosts,
        "ranks": world.ranks,
        "rate": world.rate,
        "latency": world.latency,
        "block_bytes": world.block_bytes,
        "p_growth_from": None if fewest is None else fewest["ranks"],
        "systems": systems,
        "ratios": _ratios(comparison),
        "skipped": skipped,
        "machine": machine,
        "command": command,
    }


def _system(
    comparison: Comparison, system: CollectiveSystem, world: World, fewest: dict[str, Any] | None
) -> dict[str, Any]:
    name, runs = system.name, comparison.runs[system.name]
    alone = comparison.figure(name, message_s)
    bus_bytes = comparison.size_bytes * bus_factor(comparison.operation, world.ranks)
    bus_bytes_per_s = bus_bytes / alone.median
    share = None
    if world.bytes_per_s is not None:
        share = rounded(bus_bytes_per_s * ENCODED[system.codec] / world.bytes_per_s)
    bound = _bound_s(comparison, system, world)
    return {
        "call_ms": interval(comparison.figure(name, lambda run: run.call_s * 1e3)),
        "message_ms": interval(comparison.figure(name, lambda run: run.message_s * 1e3)),
        "bus_bytes_per_s": round(bus_bytes_per_s),
        "wire_share": share,
        "bound_ms": None if bound is None else rounded(bound * 1e3),
        "bound_share": None if bound is None else rounded(bound / alone.median),
        "p_growth": _growth(alone.median, name, fewest),
        "cpu_ms_per_call": rounded(comparison.figure(name, lambda run: run.cpu_s * 1e3).median),
        "wire_bytes_per_call": link_bytes([run.traffic for run in runs]),
        "turns": len(runs),
        "calls": sum(run.calls for run in runs),
        **({"in_flight": _together(comparison, name)} if comparison.together else {}),
    }


def _bound_s(comparison: Comparison, system: CollectiveSystem, world: World) -> float | None:
    collective = system.bounds.get(comparison.operation, "")
    operation = BROADCAST if comparison.operation == MODEL else comparison.operation
    if world.bytes_per_s is None or not known(operation, collective):
        return None
    message = Message(world.ranks, comparison.size_bytes, world.block_bytes)
    return bound_s(operation, collective, message, world.bytes_per_s, world.latency_s, system.codec)


def _growth(time_s: float, name: str, fewest: dict[str, Any] | None) -> float | None:
    before = None if fewest is None else fewest["systems"].get(name)
    return None if before is None else rounded(time_s * 1e3 / before["message_ms"]["median"])


def _together(comparison: Comparison, name: str) -> dict[str, Any]:
    return {
        "messages": comparison.in_flight,
        "call_ms": interval(median_interval([run.call_s * 1e3 for run in comparison.together[name]])),
        "over_one": ratio_values(comparison.over_one(name)),
    }


def _ratios(comparison: Comparison) -> dict[str, Any]:
    systems = {system.name: system for system in comparison.measured}
    found = {}
    for name, reference in comparison.pairs:
        plain = plain_of(systems[name], comparison.measured)
        word = "plain" if plain is not None and plain.name == reference else reference
        shown = f"{name.replace('+', '_')}_over_{word}_{comparison.operation}"
        found[shown] = ratio_values(comparison.ratio(name, reference, call_s))
        found[f"{shown}_message"] = ratio_values(comparison.ratio(name, reference, message_s))
        if comparison.operation == MODEL and (name, reference) == (LINEAR, GLOO):
            found["broadcast_parameters_ratio"] = found[shown]
    return found
