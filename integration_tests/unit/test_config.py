"""Options: names, values, precedence, and the page made from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline import config, options_page, renamed, variables
from paceline.debug_values import DEBUG_VALUES
from paceline.errors import UserError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "options.md"


def test_flag_wins_over_variable_and_variable_over_default() -> None:
    settings = config.read({"HOME": "/nowhere", "HOROVOD_RANK": "1"})
    assert (settings.record, settings.drain_limit_s, settings.progress, settings.debug) == (None, 600, True, None)
    assert settings.origin("drain_limit_s") == "default"
    assert (settings.record_steps, settings.check_horovod) == (1000, True)
    assert settings.given() == []
    # Flag wins over variable and variable over default.
    environ = {"PACELINE_DRAIN_LIMIT_S": "20", "PACELINE_PROGRESS": "off"}
    settings = config.read(environ, {"drain_limit_s": "30"})
    assert (settings.drain_limit_s, settings.origin("drain_limit_s")) == (30, "--drain-limit-s")
    assert (settings.progress, settings.origin("progress")) == (False, "PACELINE_PROGRESS")
    assert settings.given() == ["progress", "drain_limit_s"]
    # An empty variable is not set and a wrong flag is named as a flag.
    assert not config.read({option.variable: "" for option in config.OPTIONS}).given()
    with pytest.raises(UserError, match="--drain-limit-s='ten'"):
        config.read({}, {"drain_limit_s": "ten"})


def test_the_policy_optimal_brings_along_what_no_option_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(settings: config.Settings) -> tuple[Any, ...]:
        return settings.fusion, settings.armed, settings.wake, settings.bucket_bytes

    plain, planned = ("threshold", False, "cycle", 0), ("optimal", True, "events", 16384)
    assert found(config.read({})) == plain
    optimal = config.read({"PACELINE_FUSION": "optimal"})
    assert (found(optimal), optimal.given()) == (planned, ["fusion"])
    assert optimal.shared() == [("PACELINE_FUSION", "optimal", "threshold")]
    assert found(config.read({"PACELINE_FUSION": "mgwfbp"})) == ("mgwfbp", *plain[1:])
    for name, value in (("armed", "no"), ("wake", "cycle"), ("bucket_bytes", "0")):
        settings = config.read({"PACELINE_FUSION": "optimal"}, {"debug": f"{name}={value}"})
        assert getattr(settings, name) == getattr(config.read({}), name)
        assert ("PACELINE_DEBUG", f"{name}={value}", "") in settings.shared()
    # Ranks may differ in whether they spell out what the policy brings along.
    assert config.read({"PACELINE_DEBUG": "armed=yes,wake=events", "PACELINE_FUSION": "optimal"}).shared() == [
        ("PACELINE_FUSION", "optimal", "threshold")
    ]
    # `paceline run` merges by plan unless another policy is set.
    run = {variables.PLANS: "yes"}
    assert (found(config.read(run)), config.read(run).given()) == (planned, [])
    for other in ({"PACELINE_EXCHANGE": "majority"}, {"PACELINE_RECORD": "t.json"}, {"HOROVOD_AUTOTUNE": "1"}):
        assert found(config.read({**run, **other})) == plain
    assert found(config.read({**run, "PACELINE_FUSION": "threshold"})) == plain
    # A script that names the policy.
    monkeypatch.setattr(config, "_current", config.read({"PACELINE_FUSION": "single"}))
    assert (config.beside("optimal", "armed"), config.beside(None, "armed")) == (True, False)
    assert (config.buckets_beside("optimal"), config.buckets_beside("single")) == (16384, 0)
    monkeypatch.setattr(config, "_current", config.read({"PACELINE_DEBUG": "bucket_bytes=10"}))
    assert config.buckets_beside("optimal") == 10


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("PACELINE_RECRD", "1", "Did you mean PACELINE_RECORD?"),
        ("PACELINE_DRAIN_LIMIT", "1", "Did you mean PACELINE_DRAIN_LIMIT_S?"),
        ("PACELINE_ARMED", "yes", "Use PACELINE_DEBUG=armed=VALUE."),
        ("PACELINE_cache_dir", "1", "paceline doctor --options"),
        *[("PACELINE_DRAIN_LIMIT_S", text, repr(text)) for text in ("ten", "0", "-3", "1.5")],
        ("PACELINE_PROGRESS", "maybe", "'maybe'"),
        ("PACELINE_RECORD", "  ", "'  '"),
        ("PACELINE_BUILD_JOBS", "2", "Set CMAKE_BUILD_PARALLEL_LEVEL"),
    ],
)
def test_variable_that_cannot_be_is_named_with_the_nearest_or_its_value(name: str, text: str, said: str) -> None:
    for flags in ({}, {"record_steps": "10"}):  # also where a flag overrides it
        with pytest.raises(UserError) as caught:
            config.read({name: text}, flags)
        assert name in caught.value.problem
        assert said in str(caught.value)


@pytest.mark.parametrize("option", (*config.OPTIONS, *DEBUG_VALUES), ids=lambda option: option.name)
def test_every_default_survives_its_own_text(option: config.Option) -> None:
    value = option.default_value
    if value is not None:
        assert option.parse(config.as_text(value)) == value


def test_declarations_are_complete_unique_at_most_twenty_and_on_the_page() -> None:
    flags = [flag for option in config.OPTIONS for flag in option.flags]
    assert len(set(flags)) == len(flags)
    assert {option.scope for option in config.OPTIONS} == {"run", "horovod"}
    assert all(option.meaning and option.kind and option.default_text for option in config.OPTIONS)
    # There are at most twenty options.
    assert len(config.OPTIONS) <= 20
    # Options page is up to date.
    command = "python -m paceline.options_page > docs/reference/options.md"
    assert PAGE.read_text() == options_page.options_page(), command


def test_debug_values_are_read_as_options_are_and_shared_where_they_must_be_equal() -> None:
    settings = config.read({"PACELINE_DEBUG": "record_steps=7, check_horovod=off,record_steps=8"})
    assert (settings.record_steps, settings.check_horovod, settings.gate_timeout_ms) == (8, False, 500)
    assert config.as_text(settings.debug) == "record_steps=8,check_horovod=no"
    assert config.read(flags={"debug": "gate_timeout_ms=9"}).gate_timeout_ms == 9

    # Ranks share the debug values that must be equal.
    def reported(text: str) -> list[tuple[str, str, str]]:
        return config.read({"PACELINE_DEBUG": text}).shared()

    assert reported("record_steps=7,check_horovod=no,gate_timeout_ms=500") == []
    first = reported("gate_timeout_ms=9,record_steps=7,fusion_watch_steps=0")
    assert first == [("PACELINE_DEBUG", "fusion_watch_steps=0,gate_timeout_ms=9", "")]
    assert reported("fusion_watch_steps=0,gate_timeout_ms=9") == first


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("record_step=3", "Did you mean record_steps?"),
        ("record_steps", "must be name=value,name=value, and 'record_steps' is not"),
        ("gate_timeout_ms=0", "gate_timeout_ms='0' must be at least 1 (ms)"),
        ("gate_timeout_ms=5,,", "and '' is not"),
        ("exchange=solo", "must name debug values, and exchange is none"),
    ],
)
def test_wrong_debug_values_are_refused(text: str, problem: str) -> None:
    with pytest.raises(UserError) as caught:
        config.read({"PACELINE_DEBUG": text})
    assert f"PACELINE_DEBUG={text!r} cannot be used: it " in caught.value.problem
    assert problem in caught.value.problem


def test_renamed_things_are_none_any_more_and_their_new_names_are() -> None:
    options = {option.name: option for option in config.OPTIONS}
    debug = {one.name for one in DEBUG_VALUES}
    assert not {*renamed.OPTIONS, *renamed.ARGUMENTS, *renamed.OTHERS, *debug} & set(options)
    assert set(renamed.OPTIONS.values()) <= set(options)
    remedies = {old: f"Use PACELINE_{new.upper()}." for old, new in renamed.OPTIONS.items()}
    remedies |= {one.name: f"Use PACELINE_DEBUG={one.name}=VALUE." for one in DEBUG_VALUES}
    remedies |= renamed.ARGUMENTS | renamed.OTHERS
    for old, remedy in remedies.items():
        with pytest.raises(UserError, match=f"PACELINE_{old.upper()}") as caught:
            config.read({f"PACELINE_{old.upper()}": "1"})
        assert remedy in caught.value.remedy
    for name, changed in renamed.VALUES.items():
        for old, new in changed.items():
            assert config.as_text(options[name].parse(new)) == new
            with pytest.raises(UserError) as caught:
                config.read({options[name].variable: old})
            assert caught.value.remedy == f"Use {new}."
    for owner, keywords in renamed.KEYWORDS.items():
        for old, new in keywords.items():
            with pytest.raises(UserError, match=f"hvd.{owner} has no argument {old}") as caught:
                renamed.refuse_keywords(owner, {old: 3})
            assert caught.value.remedy == f"Use {new}=3."


def test_exchanges_share_an_option_and_keep_their_own_defaults() -> None:
    def every(exchange: str, **more: str) -> int:
        values = config.read({"PACELINE_EXCHANGE": exchange, **more})
        return int(config.named(exchange).of_options(exchange, values).sync_every)  # type: ignore[attr-defined]

    assert (every("local"), every("majority")) == (8, 0)
    assert every("local", PACELINE_SYNC_EVERY="3") == every("solo", PACELINE_SYNC_EVERY="3") == 3
