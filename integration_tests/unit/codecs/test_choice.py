"""codec=, error_feedback= and collective=: their meaning in addition to the variables, and refused values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from paceline import config
from paceline.arguments import check_choice, choice_asked
from paceline.codecs.choice import Choice
from paceline.errors import UsageError, UserError
from paceline.exchange.sync_settings import Sync
from paceline.registry.agreement import FIELDS, agreement, differing
from paceline.registry.codecs import CODECS

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def variables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only these options are set."""
    for name in [name for name in os.environ if name.startswith("PACELINE_")]:
        monkeypatch.delenv(name)
    for name, value in getattr(request, "param", {}).items():
        monkeypatch.setenv(f"PACELINE_{name}", value)


pytestmark = pytest.mark.usefixtures("variables")


def _short(choice: Choice) -> tuple[str, bool, str, str]:
    return choice.codec, choice.error_feedback, choice.collective, choice.mark


@pytest.mark.parametrize(
    ("variables", "arguments", "expected"),
    [
        # As Horovod does it: names specify nothing.
        ({}, {}, ("none", False, "horovod", "")),
        ({}, {"codec": "none", "collective": "horovod"}, ("none", False, "horovod", "")),
        # Otherwise names specify encoding and collective, if these differ from the variables.
        ({"CODEC": "q8"}, {}, ("q8", True, "direct", ">q8>")),
        ({"CODEC": "q8", "COLLECTIVE": "ring"}, {"codec": "q8"}, ("q8", True, "ring", ">q8>")),
        ({"CODEC": "q8", "DEBUG": "codec_error_feedback=no"}, {}, ("q8", False, "direct", ">q8_plain>")),
        ({}, {"codec": "q8"}, ("q8", True, "direct", ">q8>")),
        ({}, {"codec": "bf16", "error_feedback": False}, ("bf16", False, "direct", ">bf16_plain>")),
        ({}, {"codec": "q8", "collective": "linear"}, ("q8", True, "linear", ">q8_linear>")),
        ({}, {"collective": "auto"}, ("none", False, "auto", ">none_auto>")),
        ({"COLLECTIVE": "ring"}, {"codec": "bf16"}, ("bf16", True, "ring", ">bf16>")),
        ({"CODEC": "q8"}, {"codec": "none"}, ("none", False, "horovod", "")),
        ({"CODEC": "q8"}, {"error_feedback": False}, ("q8", False, "direct", ">q8_plain>")),
        ({"CODEC": "q8"}, {"collective": "direct"}, ("q8", True, "direct", ">q8>")),
    ],
    indirect=["variables"],
)
def test_arguments_win_over_variables(arguments: dict[str, Any], expected: Any) -> None:
    assert _short(choice_asked(**arguments)) == expected


@pytest.mark.parametrize(
    ("variables", "arguments", "problem", "remedy"),
    [
        ({}, {"codec": "trunc16"}, "codec='trunc16' is not known", "Use bf16."),
        ({}, {"collective": "gloo"}, "collective='gloo' is not known", "Use horovod."),
        ({}, {"codec": "bf61"}, "codec='bf61' is not known", "none, bf16, q8, q4. Did you mean bf16?"),
        ({}, {"codec": 8}, "codec=8 is not known", "Use one of"),
        ({}, {"collective": "rnig"}, "collective='rnig'", "Did you mean ring?"),
        ({}, {"codec": "q8", "collective": "horovod"}, "codec=q8 was given together with collective=horovod", "direct"),
        ({"COLLECTIVE": "horovod"}, {"codec": "q8"}, "q8 was given together with PACELINE_COLLECTIVE=horovod", "dir"),
        ({"COLLECTIVE": "horovod", "CODEC": "q8"}, {}, "PACELINE_CODEC=q8 was given together", "PACELINE_CODEC=none"),
        ({"CODEC": "q8"}, {"collective": "horovod"}, "PACELINE_CODEC=q8 was given together with collective", "dir"),
        ({}, {"error_feedback": True}, "error_feedback=True was given with codec='none'", "bf16, q8, q4"),
    ],
    indirect=["variables"],
)
def test_what_cannot_be_is_refused_in_two_lines(arguments: dict[str, Any], problem: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        choice_asked(**arguments)
    assert problem in caught.value.problem and "\n" not in caught.value.problem
    assert remedy in caught.value.remedy and "\n" not in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "misspelt", "right"),
    [("CODEC", "bf61", "bf16"), ("COLLECTIVE", "lineal", "linear"), ("EXCHANGE", "pipelind", "pipelined")],
)
def test_a_misspelt_value_of_a_variable_is_refused_with_the_nearest(name: str, misspelt: str, right: str) -> None:
    with pytest.raises(UserError, match=rf"{name}='{misspelt}' cannot be used: it must be one of .*mean {right}\?"):
        config.read({f"PACELINE_{name}": misspelt})


def test_compression_takes_no_codec() -> None:
    class Fp16:
        pass

    chosen = choice_asked("q8")
    check_choice(chosen, None, None)
    check_choice(choice_asked(), Fp16, None)
    with pytest.raises(UsageError, match=r"codec=q8 was given together with compression=Fp16(.|\n)*Leave compression="):
        check_choice(chosen, Fp16, None)


def test_bfloat16_gradients_are_sent_as_two_bytes_over_our_own_collectives(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choice_asked().bfloat16 is None  # Horovod's own: as float32
    assert choice_asked("q8").bfloat16 is None  # as all others
    for collective, mark in (("ring", ">bf16_plain_direct>"), ("direct", ">bf16_plain>")):
        monkeypatch.setenv("PACELINE_COLLECTIVE", collective)
        config.begin()
        other = choice_asked().bfloat16
        assert other is not None and _short(other) == ("bf16", False, "direct", mark)
    # Also if the collective is requested here: the variable has another value.
    monkeypatch.delenv("PACELINE_COLLECTIVE")
    config.begin()
    other = choice_asked(collective="ring").bfloat16
    assert other is not None and other.mark == ">bf16_plain_direct>"


def test_ranks_are_distinguished_by_what_they_chose() -> None:
    choices = [
        choice_asked(), choice_asked("q8"), choice_asked("q8", False), choice_asked("bf16"),
        choice_asked("q8", collective="ring"), choice_asked(collective="ring"),
    ]  # fmt: skip
    for one in choices:
        for other in choices:
            mine, theirs = agreement(Sync(), 3, one), agreement(Sync(), 3, other)
            assert len(mine) == len(FIELDS)
            assert (mine == theirs) == (one == other), (one, other)
    mine, theirs = (agreement(Sync(), 2, one) for one in (choices[1], choices[2]))
    assert differing(theirs, mine, mine) == "error_feedback from 0 to 1 (1 here)"


def test_numbers_are_those_of_core() -> None:
    # codec.cc lists its codecs in this order.
    source = (ROOT / "plugin" / "core" / "codecs" / "codec.cc").read_text()
    listed = source.split("new Codecs{")[1].split("};")[0]
    classes = ["NoCodec", "Bf16Codec", "StepCodec<8>", "StepCodec<4>"]
    assert [" ".join(one.split()).removeprefix("new ") for one in listed.split(",")] == classes
    assert [codec.number for codec in CODECS.values()] == list(range(len(CODECS)))
