"""The table of cases: each can be measured, and settings of the command line replace those of a case."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from paceline.errors import UserError
from paceline.examples.benchmarks.cases import CASES, KINDS, Case, benchmark, chosen
from paceline.examples.benchmarks.collectives.systems import find as find_collective
from paceline.examples.benchmarks.networks import models
from paceline.examples.benchmarks.scale.systems import SYSTEMS as SCALE
from paceline.examples.benchmarks.skew.model import SYSTEMS as SKEW
from paceline.examples.benchmarks.stages.benchmark import SYSTEMS as STAGES
from paceline.examples.benchmarks.steps.benchmark import _rate
from paceline.examples.benchmarks.steps.benchmark import find as find_steps
from paceline.examples.benchmarks.training.codecs import CODINGS
from paceline.examples.benchmarks.training.uneven import SYSTEMS as UNEVEN

LOCAL = ("many", "many-wrapper", "many-unmodified", "collectives-small")
TABLES: dict[str, Collection[str]] = {
    "pipeline": STAGES,
    "coordination": SCALE,
    "skew": SKEW,
    "codecs": CODINGS,
    "uneven": UNEVEN,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_can_be_measured(case: Case) -> None:
    settings = case.parsed()
    assert 0 < len(settings.systems) <= 4, "more crowd each other out of a small machine's processor"
    for name in settings.systems:
        if case.kind == "steps":
            assert all(find_steps(name, model).name == name for model in settings.models)
        elif case.kind == "collectives":
            assert find_collective(name).refusal == ""
        else:
            assert name in TABLES[case.kind]
    if case.kind == "steps":
        assert [_rate(settings, models.find(model))[0] for model in settings.models]
        assert len(settings.models) == case.results
    if case.kind == "collectives":
        assert len(settings.worlds) * len(settings.cases) == case.results
    assert case.needs_root == (case.kind in ("steps", "collectives") and case.name not in LOCAL)
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


def test_settings_replace_those_of_a_case() -> None:
    (case,) = chosen(["resnet20-rtt"])
    changed = case.with_settings(["hosts=1", "latency=none", "models=mini,lstm-x0.1", "ranks=3"])
    assert case.needs_root and not changed.needs_root and changed.shown.startswith("hosts=1 latency=none")
    settings = changed.parsed()
    assert (settings.hosts, settings.size, settings.latency, settings.rate) == (1, 3, None, "200mbit")
    assert settings.models == ("mini", "lstm-x0.1") and case.parsed().models == ("resnet20",)
    (case,) = chosen(["broadcast-growth"])
    assert not case.with_settings(["ranks=2,4"]).needs_root
    assert case.with_settings(["hosts=2,4"]).parsed().worlds == [(2, 2), (4, 4)]


@pytest.mark.parametrize(
    ("word", "said"),
    [("host=2", "Did you mean hosts?"), ("hosts=two", "Expected `int`"), ("bucket_bytes=1.5", "Expected `int`")],
)
def test_a_setting_that_cannot_be_used_is_refused(word: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        CASES[1].with_settings([word])
    assert said in str(refused.value)


def test_a_share_of_compute_gives_the_rate_of_a_ring() -> None:
    (case,) = chosen(["pipelined-third"])
    rate, note = _rate(case.parsed(), models.find("resnet50-x0.02"))
    # 2 (p - 1) / p times 2 MB of gradients in 0.3 x 450 ms.
    assert rate == "182mbit" and note is not None and "3.07 MB a step and link take 0.3 x the 450.0 ms" in note
    with pytest.raises(UserError, match="is not known"):
        _rate(case.parsed(), models.find("resnet20-real"))
