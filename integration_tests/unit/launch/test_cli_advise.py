"""`paceline advise`: rows, recommendation, JSON and report from given traces, and refusals before a run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec import UNSET, structs

from integration_tests.unit.fusion.test_from_trace import A_S, B_S, COORDINATION_S, STEP_S, recorded
from integration_tests.unit.launch.test_cli import refused
from paceline.errors import UserError
from paceline.failure.reports import Recorded
from paceline.fusion import Gradient
from paceline.launch import cli
from paceline.launch.advise import command, curves, effects, hints, ranking, report, texts, values
from paceline.launch.advise.ranking import Advice, Row
from paceline.launch.advise.script import Script
from paceline.launch.enough import OTHERS_S, Enough
from paceline.launch.failures.output import Output
from paceline.launch.intervals import Interval
from paceline.predict.advice import StepModel, model_of
from paceline.predict.remedies import Remedy
from paceline.record import processors
from paceline.record.pace import update_s
from paceline.record.trace import Arrival, Costs, Processors, Trace

LAUNCHER = "horovodrun -np 3 python train.py"
SAMPLES = tuple((float(size), A_S + B_S * size) for size in (4_096, 32_768, 500_000))


def measured_trace(faster: float = 4.0, coordination_s: float = COORDINATION_S) -> Trace:
    """A trace whose ranks measured costs: Paceline's collectives start up `faster` times as fast."""
    whole = recorded()
    own = tuple((size, seconds - A_S + A_S / faster) for size, seconds in SAMPLES)
    costs = Costs(SAMPLES, own, 0.0, coordination_s)
    return Trace(whole.size, (structs.replace(whole.ranks[0], costs=costs), *whole.ranks[1:]))


def model(trace: Trace | None = None) -> StepModel:
    found = model_of(trace or measured_trace())
    assert found is not None
    return found


def advice(
    predicted: Mapping[str, float], error: float = 0.0, measured: Mapping[str, tuple[float, float, float]] | None = None
) -> Advice:
    """Rows by flags with predicted steps in seconds, of a stock step of 1 s; `measured`: ratios by the same flags."""
    priced = ("--exchange", "--codec")
    found = [Row({}, 1.0, False)]
    found += [Row(effects.options(name), step_s, name.startswith(priced)) for name, step_s in predicted.items()]
    made = Advice(found, 1.0, error)
    if measured is None:
        return made
    rows = {effects.shown(effects.options(name)): Interval(*three, 5) for name, three in measured.items()}
    return ranking.with_measured(
        made, {one.name: replace(one, measured=rows[one.name]) for one in found if one.name in rows}
    )


def test_costs_that_ranks_measured_are_those_of_the_model() -> None:
    found = model()
    in_steps_s = model(recorded()).coordination_s
    assert found.coordination_s == min(in_steps_s, COORDINATION_S)
    assert model(measured_trace(coordination_s=in_steps_s / 2)).coordination_s == in_steps_s / 2
    assert model(measured_trace(coordination_s=4 * in_steps_s)).coordination_s == in_steps_s
    assert found.stock.a_s == pytest.approx(A_S, rel=1e-3) and found.own.a_s == pytest.approx(A_S / 4, rel=1e-3)
    assert found.events_s == min(found.coordination_s, found.own.a_s)
    without = model(recorded())
    assert (without.own.a_s, without.work_s) == (without.stock.a_s, 0.0)
    slower = {one.flags: one.step_s for one in found.remedies(8.0)}
    for one in found.remedies():
        assert one.step_s <= slower.get(one.flags, one.step_s) * (1 + 1e-3), "merging in cycles may be lucky"


def test_no_step_is_predicted_shorter_than_processors_need_for_it() -> None:
    whole = measured_trace()
    used = [("a", 0.5), ("b", 1.2), ("b", 0.6)]
    busy = [
        structs.replace(rank, processors=Processors(machine, 2, each))
        for rank, (machine, each) in zip(whole.ranks, used)
    ]
    slow = Trace(whole.size, tuple(busy))
    assert whole.busy_share == 0.0 and slow.busy_share == pytest.approx(0.9)
    before = {one.flags: one.step_s for one in model().remedies(1000.0)}
    for one in model(slow).remedies(1000.0):
        bound = 0.0 if one.ranks < 3 or "local" in one.flags else 0.9 * 10 * STEP_S
        assert one.step_s == pytest.approx(max(before[one.flags], bound))
    switched = [
        structs.replace(rank, processors=Processors(machine, 2, each, busy=1.9))
        for rank, (machine, each) in zip(whole.ranks, used)
    ]
    assert Trace(whole.size, tuple(switched)).busy_share == pytest.approx(0.95), "the kernel's work counts, too"


def test_processors_of_the_process_and_of_the_whole_machine() -> None:
    begun = processors.used()
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        sum(range(1_000_000))
        time.sleep(0.5)
        found = processors.used().since(begun)
    finally:
        other.kill()
        other.wait()
    assert found is not None and 0 < found.used <= found.cores and found.machine and begun.since(begun) is None
    assert found.busy > found.used


def test_rows_are_stock_and_sensible_settings_fastest_first() -> None:
    found = [
        Remedy("", 1.0, 4),
        Remedy("--codec q8 --fusion threshold", 0.4, 4, "rounded"),
        Remedy("--fusion optimal", 0.5, 4),
        Remedy("--fusion mgwfbp --debug armed=yes", 0.5, 4),
        Remedy("--fusion none --debug armed=yes", 0.6, 4),
        Remedy("--exchange pipelined --fusion single", 0.7, 4, "late"),
        Remedy("-np 2", 0.7, 2, "fewer"),
    ]
    made = ranking.rows(found)
    assert [one.name for one in made] == [
        ranking.HOROVODS,
        "PACELINE_CODEC=q8",
        "PACELINE_FUSION=optimal",
        "PACELINE_EXCHANGE=pipelined PACELINE_FUSION=single",
    ]
    assert [one.priced for one in made] == [False, True, False, True]
    assert [one.name for one in ranking.to_verify(made, 1.0)] == ["PACELINE_CODEC=q8", "PACELINE_FUSION=optimal"]
    assert [one.name for one in ranking.to_verify(made, 0.45)] == ["PACELINE_CODEC=q8"]
    assert made[1].code == 'optimizer = hvd.DistributedOptimizer(optimizer, ..., codec="q8")'
    assert made[1].effect.wire == pytest.approx(260 / 1024)
    assert made[3].effect.page == "methods/pipelined.md, methods/fusion.md"


def test_every_setting_has_its_effects_and_its_page() -> None:
    docs = Path(__file__).resolve().parents[3] / "docs"
    for row in ranking.rows(model().remedies())[1:]:
        assert row.effect.page, row.name
        assert all((docs / page).exists() for page in row.effect.page.split(", "))


@pytest.mark.parametrize(
    ("predicted", "error", "best"),
    [
        ({"--fusion optimal": 0.97}, 0.0, ""),
        ({"--fusion optimal": 0.90}, 0.0, "--fusion optimal"),
        ({"--fusion optimal": 0.90}, 0.12, ""),
        ({"--fusion optimal": 0.90, "--exchange pipelined": 0.88}, 0.0, "--fusion optimal"),
        ({"--fusion optimal": 0.90, "--exchange pipelined": 0.60}, 0.0, "--exchange pipelined"),
        ({"--exchange pipelined --codec q8": 0.600, "--exchange pipelined": 0.601}, 0.0, "--exchange pipelined"),
        ({"--exchange pipelined": 0.50}, 0.25, ""),
    ],
    ids=["too small", "free", "within the error", "not worth its price", "worth it", "fewer variables", "unreliable"],
)
def test_what_is_recommended(predicted: Mapping[str, float], error: float, best: str) -> None:
    found = advice(predicted, error)
    assert found.best.options == effects.options(best)
    said = " ".join(texts.sentences(found, LAUNCHER))
    if best:
        assert f"Recommended: {found.best.name} {LAUNCHER}" in said and "--verify" in said
    else:
        assert "Recommended: stock" in said or "Nothing is recommended" in said


def test_measurements_overrule_predictions() -> None:
    predicted = {"--exchange pipelined": 0.5, "--fusion optimal": 0.8, "--codec q8": 0.9}
    slower = {"--exchange pipelined": (1.1, 1.0, 1.2), "--fusion optimal": (0.95, 0.93, 1.02)}
    found = advice(predicted, measured=slower)
    assert found.best is found.rows[0]
    assert [one.name for one in found.rows[1:]] == [
        "PACELINE_FUSION=optimal",
        "PACELINE_EXCHANGE=pipelined",
        "PACELINE_CODEC=q8",
    ]
    assert "No setting was measured to be faster" in " ".join(texts.sentences(found, LAUNCHER))
    drifted = replace(found, rows=[replace(found.rows[0], measured_s=1.3), *found.rows[1:]])
    assert "took 1300.0 ms in the measured runs" in " ".join(texts.sentences(drifted, LAUNCHER))
    assert "in the measured runs" not in " ".join(texts.sentences(found, LAUNCHER))
    found = advice(predicted, 0.3, measured={**slower, "--fusion optimal": (0.85, 0.83, 0.9)})
    assert found.best.options == {"fusion": "optimal"}, "what is measured needs no model"


def text_of(found: Advice, columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    from paceline.launch import console

    monkeypatch.setenv("COLUMNS", columns)
    console.out().print(texts.table(found, "title"))
    return capsys.readouterr().out


def test_the_table_has_what_each_setting_costs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = advice({"--exchange pipelined": 0.5}, measured={"--exchange pipelined": (0.52, 0.5, 0.55)})
    shown = text_of(found, "200", monkeypatch, capsys)
    for phrase in ("PACELINE_EXCHANGE=pipelined", "500.0 ms", "0.52 [0.50, 0.55]", "one step late", "1 copy of the"):
        assert phrase in shown
    assert "measured" not in text_of(advice({"--exchange pipelined": 0.5}), "200", monkeypatch, capsys)


def test_the_json_has_every_row() -> None:
    found_model = model()
    found = Advice(ranking.rows(found_model.remedies()), found_model.step_s, found_model.error)
    drawn = curves.curves(found_model, found.rows)
    made = json.loads(json.dumps(values.as_values(found, found_model, ["python", "train.py"], drawn)))
    assert (made["format"], made["version"], made["ranks"]) == ("paceline-advice", 1, 3)
    assert made["step_s"] == pytest.approx(10 * STEP_S)
    assert made["settings"][0]["variables"] == {} and made["settings"][0]["code"] == ""
    assert all(one["measured_ratio"] is None and one["predicted_step_s"] > 0 for one in made["settings"])
    assert made["recommended"] is None, "a step of a second has a few milliseconds of communication"
    stock = made["curves"][0]
    assert stock["step_s"][0] == max(stock["step_s"]) and len(made["curves"]) == min(
        curves.MOST_CURVES, len(found.rows)
    )


class _Loaded(HTMLParser):
    """Addresses that a page would load, and its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        found = [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        self.loads += [value for value in found if not value.startswith("#")]


def test_the_report_stands_alone_and_escapes_what_it_shows() -> None:
    found_model = model()
    found = Advice(ranking.rows(found_model.remedies()), found_model.step_s, found_model.error)
    drawn = curves.curves(found_model, found.rows)
    page = report.html(found, found_model, measured_trace(), ["python '<b>.py'"], drawn)
    parser = _Loaded()
    parser.feed(page)
    assert parser.loads == [] and {"svg", "table", "style"} <= parser.tags and "script" not in parser.tags
    assert page.count("<svg") == 2 and "&lt;b&gt;" in page
    for row in found.rows:
        assert row.name.replace("'", "&#39;") in page
    assert report.html(found, found_model, measured_trace(), [], []).count("<svg") == 1


@pytest.mark.parametrize(
    ("names", "hinted"),
    [([f"allreduce.layers.{n}.weight" for n in range(6)], True), (["a.weight", "b.weight", "b.bias"], False)],
)
def test_numbered_layers_are_a_hint_at_stages(names: list[str], hinted: bool) -> None:
    assert bool(hints.stages([Gradient(name, 4, 0.0) for name in names])) == hinted


def test_a_run_has_enough_when_all_ranks_or_the_clock_say_so() -> None:
    now = [0.0]
    found = Enough(100.0, lambda: now[0])
    found.heard(0, Recorded(2, 60))
    assert not found.over
    found.heard(1, Recorded(2, 60))
    assert found.over and not found.timed_out
    waiting = Enough(None, lambda: now[0])
    waiting.heard(0, Recorded(2, 60))
    now[0] = OTHERS_S
    assert waiting.over
    late = Enough(1.0, lambda: now[0])
    now[0] += 1.0
    assert late.over and late.timed_out


def test_updates_are_timed_by_the_largest_tensor() -> None:
    """In addition each rank averages a metric twice a step, which makes the recorder's steps shorter."""
    whole = recorded()
    assert update_s(whole) == pytest.approx(10 * STEP_S)
    assert update_s(whole, 8) == pytest.approx(10 * STEP_S / 8)
    ranks = []
    for rank in whole.ranks:
        metric = next(n for n, tensor in enumerate(rank.tensors) if tensor.size_bytes < 300)
        steps = [
            structs.replace(step, arrivals=(*step.arrivals, Arrival(metric, step.start_s + 0.5))) for step in rank.steps
        ]
        ranks.append(structs.replace(rank, steps=tuple(steps)))
    assert update_s(Trace(whole.size, tuple(ranks))) == pytest.approx(10 * STEP_S)
    assert update_s(Trace(1, (structs.replace(recorded(1).ranks[0], steps=()),))) is None


def test_settings_of_the_users_are_set_aside_and_other_variables_stay(tmp_path: Path) -> None:
    environ = {
        "PACELINE_EXCHANGE": "pipelined",
        "PACELINE_PIPELINED_K": "3",
        "PACELINE_CODEC": "",
        "PACELINE_DEBUG": "gate_timeout_ms=9",
        "PACELINE_DRAIN_LIMIT_S": "5",
        "HOME": "/",
    }
    script = Script((), ("python",), tmp_path, 0, 1.0, environ)
    assert set(script.set_aside) == {"PACELINE_EXCHANGE", "PACELINE_PIPELINED_K"}


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli.main, ["advise", *words])


def test_what_is_refused_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    refused(invoke("-np", "2"), "No script was given", "paceline advise -np 2 python train.py")
    refused(invoke("-np", "1", "python", "train.py"), "One rank exchanges no gradients", "-np 2")
    refused(invoke("-np", "2", "--html", "none/there.html", "python", "train.py"), "does not exist")
    refused(invoke("-np", "2", "--exchange", "local", "python", "train.py"), "--exchange")
    assert invoke("-np", "2", "--steps", "3", "python", "train.py").exit_code == 2
    assert list(tmp_path.iterdir()) == [tmp_path / "train.py"]


def test_codecs_and_partial_rounds_are_rows_where_they_gain() -> None:
    found = [
        Remedy("", 1.0, 4),
        Remedy("--exchange pipelined", 0.5, 4, "late"),
        Remedy("--exchange pipelined --codec q8", 0.495, 4, "late and rounded"),
        Remedy("--exchange majority", 0.99, 4, "late"),
        Remedy("--codec q8 --fusion threshold", 0.9, 4, "rounded"),
        Remedy("--codec bf16 --fusion threshold", 0.99, 4, "rounded"),
    ]
    names = [one.name for one in ranking.rows(found)[1:]]
    assert names == ["PACELINE_EXCHANGE=pipelined", "PACELINE_CODEC=q8"]
    gaining = [Remedy("", 1.0, 4), Remedy("--exchange majority", 0.8, 4, "late")]
    gaining += [Remedy("--exchange pipelined", 0.7, 4, "l"), Remedy("--exchange pipelined --codec q8", 0.5, 4, "l")]
    assert len(ranking.rows(gaining)) == 4


def test_a_muted_run_shows_nothing_and_has_no_verdict() -> None:
    shown: list[str] = []
    output = Output(shown.append, shown.append)
    output.err("[0]<stderr>:before\n")
    output.mute()
    output.out("Process 0 exit with status code 143.\n")
    output.err("[0]<stderr>:Traceback (most recent call last):\n")
    verdict = output.ended(0)
    assert shown == ["[0]<stderr>:before\n"] and verdict.errors == [] and verdict.code == 0


def test_messages_of_one_size_need_measured_costs() -> None:
    whole = recorded()
    ranks = [
        structs.replace(
            rank,
            steps=tuple(
                structs.replace(
                    step,
                    collectives=(
                        structs.replace(
                            step.collectives[0],
                            tensors=tuple(range(len(rank.tensors))),
                            size_bytes=sum(tensor.size_bytes for tensor in rank.tensors),
                            end_s=step.collectives[-1].end_s,
                        ),
                    ),
                )
                for step in rank.steps
            ),
        )
        for rank in whole.ranks
    ]
    with pytest.raises(UserError, match="made 12 steps, too few to measure"):
        command._model(Trace(whole.size, tuple(ranks)), 12)
    ranks[0] = structs.replace(ranks[0], costs=measured_trace().ranks[0].costs or UNSET)
    assert command._model(Trace(whole.size, tuple(ranks)), 12).own.a_s == pytest.approx(A_S / 4, rel=1e-3)
