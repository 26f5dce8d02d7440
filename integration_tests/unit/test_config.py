"""Options: names, values, precedence, and the page made from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline import config
from paceline.errors import UserError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "options.md"


def test_nothing_set_gives_the_defaults_and_says_so() -> None:
    settings = config.read({"HOME": "/nowhere", "HOROVOD_RANK": "1"})
    assert (settings.record, settings.record_steps, settings.check_horovod) == (None, 1000, True)
    assert settings.origin("record_steps") == "default"
    assert settings.given() == []


def test_flag_wins_over_variable_and_variable_over_default() -> None:
    environ = {"PACELINE_RECORD_STEPS": "20", "PACELINE_CHECK_HOROVOD": "off"}
    settings = config.read(environ, {"record_steps": "30"})
    assert (settings.record_steps, settings.origin("record_steps")) == (30, "--record-steps")
    assert (settings.check_horovod, settings.origin("check_horovod")) == (False, "PACELINE_CHECK_HOROVOD")
    assert settings.given() == ["record_steps", "check_horovod"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("PACELINE_RECRD", "1", "Did you mean PACELINE_RECORD?"),
        ("PACELINE_RECORD_STEP", "1", "Did you mean PACELINE_RECORD_STEPS?"),
        ("PACELINE_cache_dir", "1", "paceline options"),
        *[("PACELINE_RECORD_STEPS", text, repr(text)) for text in ("ten", "0", "-3", "1.5")],
        ("PACELINE_CHECK_HOROVOD", "maybe", "'maybe'"),
        ("PACELINE_RECORD", "  ", "'  '"),
        ("PACELINE_BUILD_JOBS", "2x", "'2x'"),
    ],
)
def test_variable_that_cannot_be_is_named_with_the_nearest_or_its_value(name: str, text: str, said: str) -> None:
    for flags in ({}, {"record_steps": "10"}):  # also where a flag overrides it
        with pytest.raises(UserError) as caught:
            config.read({name: text}, flags)
        assert name in caught.value.problem
        assert said in str(caught.value)


def test_an_empty_variable_is_not_set_and_a_wrong_flag_is_named_as_a_flag() -> None:
    assert not config.read({option.variable: "" for option in config.OPTIONS}).given()
    with pytest.raises(UserError, match="--record-steps='ten'"):
        config.read({}, {"record_steps": "ten"})


@pytest.mark.parametrize("option", config.OPTIONS, ids=lambda option: option.name)
def test_every_default_survives_its_own_text(option: config.Option) -> None:
    value = option.default() if callable(option.default) else option.default
    if value is not None:
        assert option.parse(config.as_text(value)) == value


def test_declarations_are_complete_and_unique() -> None:
    flags = [flag for option in config.OPTIONS for flag in option.flags]
    assert len(set(flags)) == len(flags)
    assert {option.scope for option in config.OPTIONS} == {"run", "horovod"}
    assert all(option.meaning and option.kind and option.default_text for option in config.OPTIONS)


def test_options_page_is_up_to_date() -> None:
    assert PAGE.read_text() == config.options_page(), "make docs/options.md anew with config.options_page()"
