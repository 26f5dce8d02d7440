"""The harness of benchmarks: the table of cases, the command, turns and ratios, and predictions."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result

from integration_tests.support.packages import ROOT
from paceline.errors import UserError
from paceline.examples.benchmarks import cases, command, page
from paceline.examples.benchmarks.cases import CASES, KINDS, Case, benchmark, chosen
from paceline.examples.benchmarks.cluster import tools
from paceline.examples.benchmarks.collectives.systems import find as find_collective
from paceline.examples.benchmarks.harness import report
from paceline.examples.benchmarks.harness.ratio import Ratio, each_over, over
from paceline.examples.benchmarks.harness.turn import Turn
from paceline.examples.benchmarks.harness.turns import Comparison, Limits, Log, compare, count_for
from paceline.examples.benchmarks.keras_steps.benchmark import SYSTEMS as KERAS
from paceline.examples.benchmarks.markdown import lines
from paceline.examples.benchmarks.memory.benchmark import SYSTEMS as MEMORY
from paceline.examples.benchmarks.memory.benchmark import multiples
from paceline.examples.benchmarks.networks import models
from paceline.examples.benchmarks.outside.programs import find as find_program
from paceline.examples.benchmarks.scale.prediction import fit, worst_error
from paceline.examples.benchmarks.scale.simulated import simulate
from paceline.examples.benchmarks.scale.systems import SYSTEMS
from paceline.examples.benchmarks.scale.systems import SYSTEMS as SCALE
from paceline.examples.benchmarks.skew.model import SYSTEMS as SKEW
from paceline.examples.benchmarks.stages.benchmark import SYSTEMS as STAGES
from paceline.examples.benchmarks.steps.benchmark import _rate
from paceline.examples.benchmarks.steps.benchmark import find as find_steps
from paceline.examples.benchmarks.training import local
from paceline.examples.benchmarks.training.codecs import CODINGS
from paceline.examples.benchmarks.training.uneven import SYSTEMS as UNEVEN
from paceline.launch.intervals import Interval, median_interval
from paceline.predict.coordination import (
    Constants,
    Work,
    disseminated,
    gathered,
    handled,
    phases,
    ring,
    time_s,
)

LOCAL = ("many", "many-wrapper", "many-unmodified", "collectives-small")
ROOTED_KINDS = ("steps", "collectives", "local", "keras", "outside")
TABLES: dict[str, Any] = {"pipeline": STAGES, "coordination": SCALE, "skew": SKEW, "codecs": CODINGS, "uneven": UNEVEN}
TABLES |= {"local": local.SYSTEMS, "memory": MEMORY, "keras": KERAS}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_can_be_measured(case: Case) -> None:
    settings = case.parsed()
    alone = case.kind in ("memory", "outside")  # their systems do not run at the same time
    assert 0 < len(settings.systems) <= (20 if alone else 4), "more crowd each other out of a small machine's processor"
    for name in settings.systems:
        if case.kind == "steps":
            assert all(find_steps(name, model).name == name for model in settings.models)
        elif case.kind == "collectives":
            assert find_collective(name).refusal == ""
        else:
            known = find_program(settings.program).systems if case.kind == "outside" else TABLES[case.kind]
            assert name in known
    if case.kind == "steps":
        assert [_rate(settings, models.find(model))[0] for model in settings.models]
        assert len(settings.models) == case.results
    if case.kind == "collectives":
        assert len(settings.worlds) * len(settings.cases) == case.results
    assert case.needs_root == (case.kind in ROOTED_KINDS and case.name not in LOCAL)
    kind = benchmark(case.kind)
    assert kind.title and kind.columns and case.parsed(quick=True)
    assert case.limits(False, None, None).time_s > 0 and case.limits(True, None, None).turns == 2
    assert (case.limits(True, 7.0, 9).time_s, case.limits(True, 7.0, 9).turns) == (7.0, 9)


def test_names_are_unique_and_choose_cases_or_kinds() -> None:
    names = [*(case.name for case in CASES), *KINDS]
    assert len(set(names)) == len(names) and [case.name for case in chosen([])] == names[: len(CASES)]
    assert [case.name for case in chosen(["late-ranks", "codecs"])] == ["codecs-digits", "codecs-uneven", "late-ranks"]
    with pytest.raises(UserError, match="There is no case resnet2") as refused:
        chosen(["resnet2"])
    assert "Did you mean resnet20?" in refused.value.remedy


def test_settings_replace_those_of_a_case_and_a_share_of_compute_gives_a_rate() -> None:
    (case,) = chosen(["resnet20-rtt"])
    changed = case.with_settings(["hosts=1", "latency=none", "models=mini,lstm-x0.1", "ranks=3"])
    assert case.needs_root and not changed.needs_root and changed.shown.startswith("hosts=1 latency=none")
    settings = changed.parsed()
    assert (settings.hosts, settings.size, settings.latency, settings.rate) == (1, 3, None, "200mbit")
    assert settings.models == ("mini", "lstm-x0.1") and case.parsed().models == ("resnet20",)
    (case,) = chosen(["broadcast-growth"])
    assert not case.with_settings(["ranks=2,4"]).needs_root
    assert case.with_settings(["hosts=2,4"]).parsed().worlds == [(2, 2), (4, 4)]
    # A share of compute gives the rate of a ring.
    (case,) = chosen(["pipelined-third"])
    rate, note = _rate(case.parsed(), models.find("resnet50-x0.02"))
    # 2 (p - 1) / p times 2 MB of gradients in 0.3 x 450 ms.
    assert rate == "182mbit" and note is not None and "3.07 MB a step and link take 0.3 x the 450.0 ms" in note
    with pytest.raises(UserError, match="is not known"):
        _rate(case.parsed(), models.find("resnet20-real"))


@pytest.mark.parametrize(
    ("word", "said"),
    [("host=2", "Did you mean hosts?"), ("hosts=two", "Expected `int`"), ("bucket_bytes=1.5", "Expected `int | null`")],
)
def test_a_setting_that_cannot_be_used_is_refused(word: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        CASES[1].with_settings([word])
    assert said in str(refused.value)


def test_local_training_leaves_torchft_out_unless_it_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "refusal", lambda name: "absent" if name.startswith("torchft") else "")
    (case,) = chosen(["local-characters"])
    assert local.check(case.parsed()) == {"torchft": "absent"}
    assert local.check(case.with_settings(["systems=sync,diloco", "sync_every=1"]).parsed()) == {}
    for words, said in (
        (
            ["systems=sync,torchft_streaming"],
            r"torchft_streaming cannot be measured: absent(.|\n)*pip install torchft==",
        ),
        (["systems=sinc"], "There is no system 'sinc'"),
        (["sync_every=15"], "steps=160 is not a multiple of sync_every=15"),
        (["sync_every=0"], "Use 1 or more"),
        (["sync_every=4"], "sync_every=4 was given to streaming_q8(.|\n)*multiple of 4, 8 or more"),
    ):
        with pytest.raises(UserError, match=said):
            local.check(case.with_settings(words).parsed())


HERE, ROOTED = ("many", "stages"), "resnet20"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    hosts: int = 1
    models: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()
    bucket_bytes: int = 0
    rate: str = ""


class Stand:
    """In place of all benchmarks; `failing` has systems whose case fails."""

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self.measured: list[Limits] = []

    def measure(self, settings: Settings, limits: Limits, log: Log) -> Iterator[report.Measured]:
        if self.failing & set(settings.systems):
            raise UserError("Rank 1 of ddp ended.", "Its last output: no more paper")
        self.measured.append(limits)
        turns = {
            "stock": [Turn({"step_ms": 20.0, "bytes": None})] * 5,
            "ours": [Turn({"step_ms": 10.0, "bytes": 5e6})] * 5,
        }
        comparison = Comparison(turns, "step_ms", [over("ours", "stock", "step_ms")])
        yield report.Measured("mini: 2 ranks", comparison, {"ranks": 2}, ["a note"], {"mpi": "it is not installed"})


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    monkeypatch.chdir(tmp_path)
    made = Stand()
    columns = (report.Column("time ms", "step_ms"), report.Column("payload MB", "bytes", ".2f", 1e6))
    kind = report.Benchmark("Steps", Settings, made.measure, "per step", (*columns, report.Column("-", "never")), 1.0)
    for module in (cases, command, page):
        monkeypatch.setattr(module, "benchmark", lambda name: kind)
    monkeypatch.setattr(command, "require", lambda library: None)
    table = [replace(case, results=1) for case in cases.CASES if case.name in (*HERE, ROOTED)]
    monkeypatch.setattr(cases, "CASES", tuple(table))
    monkeypatch.setattr(page, "CASES", tuple(table))
    monkeypatch.setattr(tools, "check", lambda: None)
    return made


def run(*words: str) -> Result:
    return CliRunner().invoke(command.main, words)


def results(done: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_all_cases_are_measured_kept_and_shown(stand: Stand, tmp_path: Path) -> None:
    assert "3 cases, about" in run("--list").stdout and not stand.measured
    done = run("--json", "--quick", "--turns", "3", "--time-limit-s", "7")
    assert done.exit_code == 0, done.output
    assert [one["case"] for one in results(done)] == [ROOTED, *HERE]
    assert [(one.turns, one.time_s) for one in stand.measured] == [(3, 7.0)] * 3
    kept = json.loads((tmp_path / "bench-results/quick/many.json").read_text())
    assert kept["quick"] and kept["command"].endswith("examples.benchmarks many --quick --time-limit-s 7 --turns 3")
    run("many")
    shown = run("--no-measure", "many")
    for text in ("mini: 2 ranks", "5.00", "a note", "ours / stock: 0.500", "mpi is left out: it is not installed"):
        assert text in shown.stdout, text
    assert "never" not in shown.stdout, "columns without a value are left out"
    (tmp_path / "bench-results/many.json").write_text("{")
    assert "bench-results/many.json has no results" in run("--no-measure", "many").stderr


def test_a_case_that_fails_is_named_and_a_resumed_run_measures_only_it(stand: Stand) -> None:
    stand.failing = {"gpipe"}
    done = run()
    assert done.exit_code == 1 and "no more paper" in done.stderr and "Failed: stages." in done.stderr
    stand.failing = set()
    again = run("--resume")
    assert again.exit_code == 0 and len(stand.measured) == 3, "two, and the one that had failed"
    assert run("--resume").exit_code == 2, "nothing is left to resume"


def test_changed_settings_are_measured_and_not_kept(stand: Stand, tmp_path: Path) -> None:
    done = run("resnet20", "hosts=1", "systems=stock")
    assert done.exit_code == 0 and "hosts=1 systems=stock" in done.stderr
    assert not (tmp_path / "bench-results").exists()
    for words, said in (
        (("many", "hosts=1", "--resume"), "are not kept"),
        (("many", "bytes=3"), "has no setting bytes"),
        (("mony",), "There is no case mony"),
        (("many", "--turns", "0"), "--turns"),
    ):
        refused = run(*words)
        assert refused.exit_code == 2 and said in refused.stderr, words


def test_without_root_cases_of_hosts_are_left_out(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise UserError("The emulated cluster needs root.", "Be root.")

    monkeypatch.setattr(tools, "check", refuse)
    done = run("--json")
    assert [one["case"] for one in results(done)] == list(HERE)
    assert "Left out: resnet20. The emulated cluster needs root" in done.stderr
    assert run(ROOTED).exit_code == 2


def test_tables_are_written_between_the_markers_of_the_page(stand: Stand, tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.md"
    path.write_text((ROOT / "docs/measurements/benchmarks.md").read_text())
    before = path.read_text()
    assert run("many", "--output", str(path)).exit_code == 0
    text = path.read_text()
    assert text.partition(page.BEGIN)[0] == before.partition(page.BEGIN)[0]
    assert text.partition(page.END)[2] == before.partition(page.END)[2]
    assert "#### many: 1,000 tensors" in text and "    python -m examples.benchmarks many\n" in text
    assert "| ours | 10.0 | 10.0 .. 10.0 | 5.00 |" in text and "- ours / stock: 0.500" in text
    assert "#### resnet20: ResNet-20" in text and "#### stages-late" not in text, "what is no case any more goes"
    path.write_text("no markers")
    assert "does not say where the tables belong" in run("many", "--output", str(path)).stderr


def test_the_page_has_a_part_for_cases_only_and_titles_as_the_table() -> None:
    text = (ROOT / "docs/measurements/benchmarks.md").read_text()
    names = {case.name: case.title for case in cases.CASES}
    blocks = page._BLOCK.findall(page._parts(ROOT / "docs/measurements/benchmarks.md")[1])
    assert blocks and all(name in names and f"#### {name}: {names[name]}\n" in text for name, _ in blocks)


@pytest.mark.parametrize(
    ("values", "interval", "wide"),
    [
        ([0.75] * 7, (0.75, 0.75, 0.75), False),
        ([3.0], (3.0, 3.0, 3.0), True),
        ([1.0] * 5 + [2.0] * 5, (1.0, 1.5, 2.0), True),
        ([1.0, 1.01, 0.99, 1.0], (0.99, 1.0, 1.01), True),  # too few
        ([1.0, 1.01, 0.99, 1.0, 1.0], (0.99, 1.0, 1.01), False),
        ([1.00, 1.01, 0.99, 1.02, 0.98, 1.00, 1.01, 0.99, 40.0], (0.99, 1.0, 1.01), False),  # an outlier
    ],
)
def test_intervals(values: list[float], interval: tuple[float, float, float], wide: bool) -> None:
    low, median, high = interval
    found = median_interval(values)
    assert found == median_interval(values) == Interval(found.median, found.low, found.high, len(values))
    assert (found.low, found.median, found.high) == pytest.approx((low, median, high), abs=0.02)
    assert (found.median, found.wide) == (median, wide)


def test_intervals_hold_the_true_median_about_as_often_as_they_say() -> None:
    random = np.random.default_rng(5)
    samples = [random.exponential(1.0, size=25) for _ in range(300)]
    intervals = [median_interval([float(value) for value in sample]) for sample in samples]
    holding = sum(interval.low <= np.log(2) <= interval.high for interval in intervals)
    assert 0.90 <= holding / len(intervals) <= 0.985
    with pytest.raises(ValueError, match="at least one"):
        median_interval([])


def turns(values: Sequence[float]) -> list[Turn]:
    return [Turn({"ms": value}) for value in values]


def taking(values: Sequence[float], taken: list[str] | None = None, name: str = "") -> Callable[[], Turn]:
    endless = itertools.cycle(values)

    def take() -> Turn:
        if taken is not None:
            taken.append(name)
        return Turn({"ms": next(endless)})

    return take


def test_systems_take_turns_until_their_ratio_is_narrow() -> None:
    taken: list[str] = []
    takes = {name: taking([value], taken, name) for name, value in (("stock", 2.0), ("ours", 1.0))}
    logged: list[str] = []
    comparison = compare(takes, "ms", [over("ours", "stock", "ms")], Limits(60.0), logged.append, "mini")
    assert taken == ["stock", "ours"] * 5 and comparison.settled, "fewer than five turns settle nothing"
    assert comparison.value(comparison.ratios[0]).median == 0.5
    assert logged[-1].startswith("mini: turn 5, ours / stock 0.500 [0.500, 0.500]")


def test_turns_end_when_settled_at_their_number_and_at_the_time_limit() -> None:
    wide = {"stock": taking([1.0]), "ours": taking([1.0, 2.0])}
    ratios = [over("ours", "stock", "ms")]
    assert compare(wide, "ms", ratios, Limits(60.0, 8)).complete == 8
    assert compare(wide, "ms", ratios, Limits(1e-9)).complete == 1
    # Without ratios the figure itself settles.
    assert compare({"alone": taking([1.0, 1.01])}, "ms", (), Limits(60.0)).complete == 5
    assert not Comparison({"alone": turns([1.0, 2.0, 1.0, 2.0, 1.0])}, "ms").settled
    assert compare({"seeds": taking([1.0])}, "ms", (), Limits(60.0, 7, settles=False)).complete == 7


def test_ratios_and_intervals_of_figures_and_steps_of_a_turn() -> None:
    found = {"ours": turns([4.0, 8.0, 6.0]), "compute": turns([2.0, 4.0]), "communication": turns([1.0, 8.0])}
    value = Ratio("ours_over_max_of_parts", "ours", ("compute", "communication"), "ms").value(found)
    assert (value.median, value.count) == (1.5, 2), "a turn that is incomplete counts nothing"
    # Intervals of figures ratios over references and steps of a turn.
    assert Comparison({"alone": [Turn({"ms": 1.0, "messages": None})]}, "ms").interval("alone", "messages") is None
    # Each system is compared with every reference.
    names = [one.name for one in each_over(["stock", "ddp", "ours"], ["stock", "ddp"], "ms")]
    assert names == ["ours_over_stock", "ours_over_ddp"]
    assert [one.name for one in each_over(["stock", "ddp"], ["stock", "ddp"], "ms")] == ["ddp_over_stock"]
    # A turn has steps for its time.
    assert count_for(1.5, 0.1, 3, 40) == 15
    assert (count_for(1.5, 10.0, 3, 40), count_for(1.5, 1e-6, 3, 40)) == (3, 40)


def test_memory_is_what_the_peak_has_above_parameters_gradients_and_state() -> None:
    (case,) = chosen(["memory-4-ranks"])
    settings = case.parsed()
    assert (settings.ranks, settings.layers, settings.side, settings.bytes) == (4, 16, 1250, 100_000_000)
    # 150 MB with the parameters; then 100 MB of gradients, the state, and 50 or 70 MB more.
    first = {"before": 150e6, "peak": 500e6, "steady": 450e6, "state": 200e6}
    other = {"before": 150e6, "peak": 470e6, "steady": 460e6, "state": 150e6}
    figures = multiples([first, other], settings.bytes)
    expected = {"above": 0.7, "steady": 0.6, "state": 2.0, "peak_bytes": 500e6}
    assert figures == pytest.approx(expected), "each figure is the largest of all ranks"
    unreset = {key: value for key, value in other.items() if key != "steady"}
    assert multiples([first, unreset], settings.bytes)["steady"] is None


def test_a_table_of_one_turn_has_no_intervals() -> None:
    figures = {"turns": 1, "ms": {"median": 1.5, "low": 1.5, "high": 1.5}}
    result = {"title": "", "systems": {"stock": figures}, "ratios": {}, "notes": [], "left_out": {}}
    columns = (report.Column("time ms", "ms"),)
    assert "| stock | 1.5 |" in list(lines(report.as_table(result, "per step", columns)))
    figures["turns"] = 2
    assert "| stock | 1.5 | 1.5 .. 1.5 |" in list(lines(report.as_table(result, "per step", columns)))


RANKS = (2, 4, 8, 16, 32)


@pytest.mark.parametrize(("ranks", "hops", "messages"), [(2, 1, 1), (4, 1, 3), (8, 1, 7), (32, 2, 10), (64, 2, 14)])
def test_events_take_the_hops_and_messages_of_the_page(ranks: int, hops: int, messages: int) -> None:
    """docs/developers/coordination.md has this table."""
    assert disseminated(ranks) == Work(hops, messages, ranks * messages)
    assert ring(ranks).hops == ring(ranks).messages == 2 * (ranks - 1)


@pytest.mark.parametrize("ranks", [*range(2, 70), 100, 511, 512, 513, 4096])
def test_after_all_phases_every_rank_knows_all(ranks: int) -> None:
    radix = max(phases(ranks)) + 1
    count = len(phases(ranks))
    assert 8 ** (count - 1) < ranks <= 8**count and radix <= 8
    known = {0}  # by how many places before it the ranks are that rank 0 knows of
    for phase, sent_to in zip(reversed(range(count)), phases(ranks), strict=True):
        known = {(one + step * radix**phase) % ranks for one, step in itertools.product(known, range(sent_to + 1))}
    assert known == set(range(ranks))


def test_work_and_times_follow_closed_formulas() -> None:
    assert gathered(2) == Work(4, 4, 4)
    assert gathered(8) == Work(2 + 2 * 3, 2 * 7 + 2 * 3, 4 * 7)
    assert gathered(9).hops == gathered(16).hops == 2 + 2 * 4
    assert gathered(4096) == Work(26, 2 * 4095 + 24, 4 * 4095)
    # Times follow closed formulas.
    constants = Constants(fixed_s=1e-3, hop_s=3e-5, message_s=2e-6)
    for ranks in (2, 32, 4096):
        assert time_s(ring(ranks), constants) == pytest.approx(1e-3 + 2 * (ranks - 1) * 32e-6)
        assert time_s(ring(ranks), constants, 5e-5) == pytest.approx(1e-3 + 2 * (ranks - 1) * 82e-6)
    assert time_s(disseminated(8), constants, 5e-5) == pytest.approx(1e-3 + 8e-5 + 7 * 2e-6)
    assert time_s(disseminated(4096), constants) == pytest.approx(1e-3 + 4 * 3e-5 + 4 * 7 * 2e-6)
    # Two cores take half of what all ranks' messages cost, or all of what one rank's cost.
    assert time_s(ring(32), constants, cores=2) == pytest.approx(1e-3 + 62 * 3e-5 + 32 * 62 / 2 * 2e-6)
    assert handled(disseminated(2), 2) == handled(disseminated(2), 64) == 1 and handled(disseminated(32), None) == 10


@pytest.mark.parametrize("way", [ring, gathered, disseminated])
@pytest.mark.parametrize("true", [Constants(5e-4, 2e-5, 8e-6), Constants(0.0, 1e-5, 3e-6), Constants(1e-3, 0.0, 1e-5)])
def test_constants_are_found_again(way: Callable[[int], Work], true: Constants) -> None:
    points = [(way(ranks), time_s(way(ranks), true, cores=2)) for ranks in RANKS]
    found = fit(points, 2)
    assert (found.fixed_s, found.hop_s, found.message_s) == pytest.approx(
        (true.fixed_s, true.hop_s, true.message_s), abs=1e-9
    )
    assert worst_error(points, found, 2) < 1e-6
    # Less from ranks to ranks, as no constants can have it.
    odd = fit([(ring(ranks), 1e-2 / ranks) for ranks in RANKS], 2)
    assert min(odd.fixed_s, odd.hop_s, odd.message_s) == 0 and odd.fixed_s > 0
    with pytest.raises(ValueError, match="constants need coordinations"):
        fit([(ring(2), 0.0)], 2)


def test_more_ranks_follow_from_those_that_were_measured() -> None:
    constants = Constants(500e-6, 20e-6, 10e-6)
    measured_s = {ranks: 4 * time_s(ring(ranks), constants, cores=2) for ranks in RANKS}
    found = simulate(SYSTEMS["cached"], 4, measured_s, 2, 50e-6)
    assert found is not None and found.error < 0.01 and max(found.hosts_s) == 4096
    assert found.hosts_s[4096] == pytest.approx(4 * time_s(ring(4096), constants, 50e-6), rel=0.02)
    for too_little in ({2: 0.1, 4: 0.2}, {ranks: 0.1 / ranks for ranks in RANKS}):
        assert simulate(SYSTEMS["cached"], 4, too_little, 2, 0.0) is None
