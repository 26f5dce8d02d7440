"""From measured calls to figures, tables and refusals of `python -m examples.benchmarks collectives`."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from paceline.errors import UserError
from paceline.examples.benchmarks.collectives import mpi_start, report, systems, table, turns
from paceline.examples.benchmarks.collectives.callers import CallsRun
from paceline.examples.benchmarks.collectives.cases import MODEL, Called, Case, model_case
from paceline.examples.benchmarks.collectives.rank import place_of
from paceline.examples.benchmarks.collectives.turns import Comparison
from paceline.examples.benchmarks.commands import collectives as bench_collectives
from paceline.examples.benchmarks.commands import command as bench
from paceline.examples.benchmarks.harness.assignment import Place
from paceline.examples.benchmarks.harness.hosts import Traffic
from paceline.examples.benchmarks.harness.turns import Limits
from paceline.launch.probe.buffers import Buffers
from paceline.launch.quantities import size_bytes, size_name, sizes_bytes

SIZE = 50_000_000
WORLD = report.World(4, 4, "200mbit", 25e6, None, 0.0, SIZE // 100)


def run(call_s: float, message_s: float | None = None, calls: int = 2) -> CallsRun:
    """A turn of two ranks: the second begins a millisecond later and ends last."""
    begins, ends = [10.0 * call for call in range(calls)], [10.0 * call + call_s for call in range(calls)]
    alone = () if message_s is None else (message_s,) * calls
    first = Called(tuple(begins), tuple(end - 0.01 for end in ends), (0.5,) * calls, tuple(one / 2 for one in alone))
    second = Called(tuple(begin + 0.001 for begin in begins), tuple(ends), (0.3,) * calls, alone)
    return CallsRun([first, second], [Traffic(SIZE, 2 * SIZE), Traffic(0, SIZE)])


def compared(operation: str = "broadcast", slower: float = 1.0) -> Comparison:
    names = ["gloo", "ddp", "linear", "linear+bf16"]
    comparison = Comparison(operation, SIZE, [systems.find(name) for name in names])
    comparison.runs = {
        "gloo": [run(4.2 * slower, 4.0 * slower)] * 5,
        "ddp": [run(4.1)] * 5,
        "linear": [run(2.3 * slower, 2.1 * slower)] * 5,
        "linear+bf16": [run(1.2, 1.1)] * 5,
    }
    return comparison


def result(comparison: Comparison, fewest: dict[str, Any] | None = None) -> dict[str, Any]:
    return report.as_json(comparison, WORLD, {"mpi": "mpirun is not installed"}, fewest, {"cores": 2}, "the command")


def test_a_call_lasts_from_the_first_rank_to_the_last_and_a_message_as_long_as_the_slowest_says() -> None:
    one = run(2.3, 2.1)
    assert one.call_s == pytest.approx(2.3) and one.message_s == 2.1 and one.calls == 2
    assert one.cpu_s == pytest.approx(0.4)
    assert run(2.3).message_s == pytest.approx(2.3)  # nothing but the message


def test_figures_of_a_broadcast() -> None:
    found = result(compared())
    gloo, ddp, linear, encoded = (found["systems"][name] for name in ("gloo", "ddp", "linear", "linear+bf16"))
    assert linear["call_ms"]["median"] == pytest.approx(2300) and linear["message_ms"]["median"] == pytest.approx(2100)
    assert linear["wire_share"] == pytest.approx(2.0 / 2.1, abs=1e-3)
    assert linear["bus_bytes_per_s"] == pytest.approx(SIZE / 2.1, rel=1e-6)
    # 4 ranks: a hundredth of the message passes two of them before the last one has something.
    assert linear["bound_ms"] == pytest.approx(2000 * 1.02)
    assert linear["bound_share"] == pytest.approx(2.04 / 2.1, abs=1e-3)
    assert gloo["bound_ms"] == pytest.approx(4000) and gloo["bound_share"] == pytest.approx(1)
    assert ddp["message_ms"] == ddp["call_ms"]
    # Half of the bytes.
    assert encoded["wire_share"] == pytest.approx(1.0 / 1.1, abs=1e-3)
    assert linear["wire_bytes_per_call"] == {"sent": [SIZE, 0], "received": [2 * SIZE, SIZE]}
    assert linear["p_growth"] is None and found["p_growth_from"] is None
    assert (linear["turns"], linear["calls"], linear["cpu_ms_per_call"]) == (5, 10, pytest.approx(400))
    ratios = {name: ratio["median"] for name, ratio in found["ratios"].items()}
    assert ratios["linear_over_gloo_broadcast"] == pytest.approx(2.3 / 4.2, abs=1e-3)
    assert ratios["linear_over_gloo_broadcast_message"] == pytest.approx(2.1 / 4.0, abs=1e-3)
    assert ratios["linear_over_ddp_broadcast"] == pytest.approx(2.3 / 4.1, abs=1e-3)
    assert ratios["linear_bf16_over_plain_broadcast_message"] == pytest.approx(1.1 / 2.1, abs=1e-3)
    assert found["skipped"] == {"mpi": "mpirun is not installed"}
    json.dumps(found)


def test_growth_is_over_the_fewest_ranks() -> None:
    fewest = result(compared()) | {"ranks": 2}
    found = result(compared(slower=1.15), fewest)
    assert found["p_growth_from"] == 2
    assert found["systems"]["linear"]["p_growth"] == pytest.approx(1.15, abs=1e-3)
    assert found["systems"]["linear+bf16"]["p_growth"] == 1


def test_a_model_has_its_ratio_and_the_bound_of_a_broadcast() -> None:
    found = result(compared(MODEL))
    assert found["ratios"]["broadcast_parameters_ratio"]["median"] == pytest.approx(2.3 / 4.2, abs=1e-3)
    assert found["systems"]["linear"]["bound_ms"] == pytest.approx(2000 * 1.02)


def test_without_links_there_is_no_share() -> None:
    loopback = replace(WORLD, hosts=1, rate=None, bytes_per_s=None)
    found = report.as_json(compared(), loopback, {}, None, {}, "")
    assert found["systems"]["linear"]["wire_share"] is None and found["systems"]["linear"]["bound_share"] is None


def test_messages_in_flight_are_set_against_one() -> None:
    comparison = compared()
    comparison.in_flight, comparison.together = 8, {name: [run(4.6)] * 5 for name in comparison.runs}
    found = result(comparison)["systems"]["linear"]["in_flight"]
    assert found["messages"] == 8 and found["over_one"]["median"] == pytest.approx(2.0)


def test_turns_end_when_ratios_are_known() -> None:
    assert compared().settled
    comparison = compared()
    comparison.runs["linear"] = [run(1.0 + turn) for turn in range(5)]
    assert not comparison.settled
    comparison.runs = {name: runs[:4] for name, runs in compared().runs.items()}
    assert not comparison.settled


def test_a_turn_has_calls_for_about_a_second() -> None:
    assert turns.calls_per_turn(4.0) == 1 and turns.calls_per_turn(1e-4) == turns.MOST_CALLS
    assert 9 <= turns.calls_per_turn(0.1) <= 10


def test_a_first_call_is_left_out_where_it_is_cheap() -> None:
    wanted = turns.Wanted(("broadcast",), (4, SIZE), (SIZE,), 1, Limits(), 25e6)
    assert wanted.comparisons == [("broadcast", 4), ("broadcast", SIZE), (MODEL, SIZE)]
    assert wanted.warms_up(4) and not wanted.warms_up(SIZE)
    assert replace(wanted, bytes_per_s=None).warms_up(SIZE)


@pytest.mark.parametrize(("text", "bytes_"), [("4", 4), ("4KiB", 4096), ("1.5 MiB", 3 << 19), ("64MB", 64_000_000)])
def test_sizes_are_read(text: str, bytes_: int) -> None:
    assert size_bytes(text) == bytes_ and size_bytes(size_name(bytes_)) == bytes_


def test_sizes_named_twice_are_one() -> None:
    assert sizes_bytes("4,4KiB,4096") == (4, 4096) and (size_name(4096), size_name(100)) == ("4KiB", "100")


@pytest.mark.parametrize("operation", ["broadcast", "reduce", "allreduce"])
def test_wrong_results_are_found(operation: str) -> None:
    root, other = Buffers(Case(operation, 64, 2), 0, 3), Buffers(Case(operation, 64), 2, 3)
    assert [array.size for array in root.arrays] == [16, 16]
    for one in (root, other):
        one.fill()
    right = 1 if operation == "broadcast" else 6
    for array in (*root.arrays, *other.arrays):
        array.fill(right)
    root.check()
    other.check()
    root.arrays[1][3] = 2
    with pytest.raises(ValueError, match=f"{operation} of 64 bytes on rank 0: element 3 is 2.0"):
        root.check()
    other.arrays[0][:] = np.inf
    if operation == "reduce":
        other.check()  # only the root has a result
    else:
        with pytest.raises(ValueError, match="on rank 2"):
            other.check()


def test_a_model_has_tensors_of_many_sizes() -> None:
    arrays = Buffers(model_case(4_000_000), 0, 2).arrays
    assert len(arrays) == 199 and sum(array.nbytes for array in arrays) == pytest.approx(4_000_000, rel=0.01)


def test_systems_say_what_they_set_and_what_they_are_measured_on() -> None:
    ring = systems.find("ring+q8")
    assert ring.env["PACELINE_COLLECTIVE"] == "ring" and ring.env["PACELINE_CODEC"] == "q8"
    assert ring.operations == ("allreduce",) and ring.bounds["allreduce"] == "ring"
    assert systems.find("linear+q8").operations == ("reduce", "allreduce")
    assert MODEL in systems.find("linear").operations and "PACELINE_CODEC" not in systems.find("gloo").env
    assert systems.plain_of(ring, [systems.find("linear"), ring]) is None
    assert systems.plain_of(ring, [systems.find("ring"), ring]) == systems.find("ring")
    assert set(systems.DEFAULT) >= {"gloo", "ddp", "mpi", "linear", "ring", "direct", "doubling"}


def test_what_is_missing_is_left_out_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "mpirun" in systems.find("mpi").refusal()
    assert systems.find("ring").refusal() == systems.find("ddp").refusal() == ""
    unknown = replace(systems.find("ring"), env={"PACELINE_COLLECTIVE": "sung"})
    assert "PACELINE_COLLECTIVE" in unknown.refusal()


def test_ranks_of_mpirun_find_their_number() -> None:
    place = Place(-1, 4, ("a", "b"), ("10.0.0.1", "10.0.0.2"), "/tmp/x", "/tmp/x/control")
    assert place_of(place.to_json(), {"OMPI_COMM_WORLD_RANK": "3"}) == replace(place, rank=3)
    assert place_of(replace(place, rank=1).to_json(), {"OMPI_COMM_WORLD_RANK": "3"}).rank == 1
    words = mpi_start.command(["python", "x"], 4, ("a", "b"), Path("/tmp/log"))
    assert "mpirun" in words and "a:2,b:2" in words and words[-2:] == ["python", "x"] and "eth0" in words
    assert "lo" in mpi_start.command(["python", "x"], 2, ("localhost",), Path("/tmp/log"))


def test_the_table_shows_the_figures() -> None:
    output = io.StringIO()
    Console(file=output, width=200).print(table.as_table(result(compared(), result(compared()) | {"ranks": 2})))
    for text in ("broadcast of 50 MB", "2300", "0.952", "0.971", "0.548", "over 2 ranks", "over plain"):
        assert text in output.getvalue(), text


@pytest.mark.parametrize(
    ("hosts", "ranks", "worlds"),
    [
        (None, None, ((4, 4),)),
        (None, "2..4", ((1, 2), (1, 3), (1, 4))),
        ("2,8", None, ((2, 2), (8, 8))),
        ("2", "4", ((2, 4),)),
        ("1", None, ((1, 2),)),
    ],
)
def test_hosts_and_ranks_make_worlds(hosts: str | None, ranks: str | None, worlds: tuple[tuple[int, int], ...]) -> None:
    asked = bench_collectives.requested(**OPTIONS | {"hosts": hosts, "ranks": ranks})
    assert asked.worlds == worlds and asked.rate == ("200mbit" if worlds[0][0] > 1 else None)


OPTIONS: dict[str, Any] = {
    "hosts": None, "ranks": None, "rate": None, "latency": None, "operations": None, "sizes": "4", "systems": None,
    "in_flight": 1, "model_mb": 0.0, "time_limit_s": 30.0, "turns": 9,
}  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ranks", "1"], "1 ranks on 1 hosts cannot be measured"),
        (["--ranks", "8..2"], "the range is empty"),
        (["--ranks", "x"], "--ranks x cannot be used"),
        (["--hosts", "2", "--ranks", "3"], "3 ranks on 2 hosts"),
        (["--hosts", "2,4", "--ranks", "2"], "cannot be used together"),
        (["--ranks", "2", "--rate", "1gbit"], "loopback has none"),
        (["--rate", "fast"], "The rate 'fast' cannot be used"),
        (["--ranks", "2", "--latency", "2ms"], "--latency 2ms cannot be used"),
        (["--sizes", "6"], "The size '6' cannot be used"),
        (["--sizes", "4furlong"], "The size '4furlong' cannot be used"),
        (["--systems", "rung"], "There is no system 'rung'"),
        (["--systems", "ring+q9"], "There is no system 'ring.q9'"),
        (["--operations", "gather"], "--operations gather cannot be used"),
        (["--in-flight", "0"], "--in-flight 0 cannot be used"),
        (["--turns", "0"], "--turns 0 cannot be used"),
        (["--model-mb", "-1"], "--model-mb -1 cannot be used"),
        (["--time-limit-s", "nan"], "--time-limit-s nan cannot be used"),
    ],
)
def test_bad_input_is_named(arguments: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        CliRunner().invoke(bench.bench_command, ["collectives", *arguments], catch_exceptions=False)


def test_the_command_that_is_told_repeats_what_was_asked_for() -> None:
    asked = bench_collectives.requested(
        **OPTIONS | {"hosts": "2,8", "latency": "2ms", "sizes": "4,64MiB", "model_mb": 400.0}
    )
    words = asked.command.removeprefix("python -m examples.benchmarks collectives ").split()
    given = dict(zip(words[::2], words[1::2], strict=True))
    assert given["--hosts"] == given["--ranks"] == "2,8" and given["--latency"] == "2ms"
    again = OPTIONS | {
        "hosts": given["--hosts"], "ranks": given["--ranks"], "rate": given["--rate"], "latency": given["--latency"],
        "operations": given["--operations"], "sizes": given["--sizes"], "systems": given["--systems"],
        "model_mb": float(given["--model-mb"]),
    }  # fmt: skip
    assert bench_collectives.requested(**again) == asked
