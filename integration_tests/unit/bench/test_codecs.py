"""Where training with codecs ends beside training without: figures, tables, what the command refuses."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from paceline.errors import UserError
from paceline.examples.benchmarks import codecs_torch
from paceline.examples.benchmarks.commands import command as bench
from paceline.examples.benchmarks.harness import codec_training
from paceline.examples.benchmarks.harness.codec_table import as_table
from paceline.launch import runs

# By coding, the loss of seeds 0, 1, 2: means 1, 1.1 and 2, standard deviations 0.1, 0.1 and 0.
LOSSES = {"none": [1.0, 0.9, 1.1], "q8": [1.1, 1.0, 1.2], "q8_plain": [2.0, 2.0, 2.0]}


def ended(coding: str, seed: int, loss: float, equal: bool = True) -> dict[str, Any]:
    """What the example says of one run."""
    figures = {"loss": loss, "training_loss": loss / 2, "accuracy": 0.5, "equal": equal}
    return {"model": "digits", "coding": coding, "seed": seed, "steps": 184, **figures}


# In the order in which runs end: all codings of a seed, then the next.
RESULTS = [ended(coding, seed, losses[seed]) for seed in (0, 1, 2) for coding, losses in LOSSES.items()]


def test_distances_are_in_standard_deviations_of_both() -> None:
    assert runs.apart([1.1, 1.0, 1.2], [1.0, 0.9, 1.1]) == pytest.approx(1.0)
    assert runs.apart([2.0, 2.0, 2.0], [1.0, 0.9, 1.1]) == pytest.approx(1 / (0.1**2 / 2) ** 0.5)
    assert runs.apart([1.0, 1.0], [2.0, 2.0]) is None
    assert runs.apart([1.0], [2.0]) is None


def test_figures_of_every_coding() -> None:
    found = codec_training.summary(RESULTS)
    assert (found["steps"], found["seeds"], list(found["codings"])) == (184, 3, list(LOSSES))
    none, q8, plain = (one["loss"] for one in found["codings"].values())
    assert (none["mean"], none["sd"]) == (pytest.approx(1.0), pytest.approx(0.1))
    assert none["from_none_sd"] is None and none["paired"] is None
    assert q8["from_none_sd"] == pytest.approx(1.0)
    # Each seed ends 0.1 higher: far more telling than the means, whose seeds differ by as much.
    assert q8["paired"] == {"mean": pytest.approx(0.1), "sd": pytest.approx(0.0, abs=1e-9)}
    assert plain["from_none_sd"] == pytest.approx(14.142, abs=1e-3)
    assert found["codings"]["q8"]["training_loss"]["mean"] == pytest.approx(0.55)
    assert found["codings"]["q8"]["accuracy"]["from_none_sd"] is None


def test_seeds_are_paired_in_whatever_order_they_end() -> None:
    assert codec_training.summary(RESULTS[::-1])["codings"]["q8"] == codec_training.summary(RESULTS)["codings"]["q8"]


def test_without_none_nothing_is_compared() -> None:
    found = codec_training.summary([one for one in RESULTS if one["coding"] != "none"])
    assert found["codings"]["q8"]["loss"]["from_none_sd"] is None
    assert found["codings"]["q8"]["loss"]["paired"] is None


def test_replicas_that_differ_are_an_error() -> None:
    with pytest.raises(UserError, match="q8, seed 3: the replicas on the ranks are not equal"):
        codec_training.summary([*RESULTS, ended("q8", 3, 1.0, equal=False)])


def _say(count: int, asked: list[Any]) -> Callable[..., None]:
    """In the place of the ranks: the first `count` runs end."""

    def run_python(words: Any, ranks: int, environ: Any, limit_s: float, on_line: Callable[[str], None]) -> None:
        asked.append((words, ranks, environ, limit_s))
        for one in RESULTS[:count]:
            on_line("RESULT " + json.dumps(one))

    return run_python


def test_all_tensors_are_encoded_and_all_codings_take_one_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    told: list[str] = []
    monkeypatch.setattr(codec_training, "run_python", _say(9, asked))
    found = codec_training.compare("digits", tuple(LOSSES), 3, 4, "ring", 184, told.append, 60.0)
    ((words, ranks, environ, limit_s),) = asked
    assert words[0].endswith("codecs_torch.py")
    assert words[1:] == ["--model", "digits", "--codings", "none,q8,q8_plain", "--seeds", "3", "--steps", "184"]
    assert (ranks, limit_s) == (4, 60.0)
    assert environ["PACELINE_COLLECTIVE"] == "ring" and environ["PACELINE_CODEC_LEAST_BYTES"] == "0"
    assert environ["PACELINE_CODEC"] == "none", "the example chooses; what else it adds up travels as it is"
    assert told[1] == "digits, seed 0, q8: loss 1.10000" and len(told) == 9
    assert (found["model"], found["ranks"], found["collective"]) == ("digits", 4, "ring")


def test_runs_that_say_nothing_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_training, "run_python", _say(8, []))
    with pytest.raises(UserError, match="8 of 9 runs of digits said how they ended"):
        codec_training.compare("digits", tuple(LOSSES), 3, 2, "direct", None, lambda line: None, 60.0)


def test_the_table_shows_the_figures() -> None:
    output = io.StringIO()
    result = {"model": "digits", "ranks": 2, "collective": "direct", **codec_training.summary(RESULTS)}
    Console(file=output, width=140).print(as_table(result))
    shown = output.getvalue()
    for text in ("digits: 2 ranks, 3 seeds, 184 steps", "1.10000 ± 0.10000", "+1.00", "+14.14", "+0.10000 ± 0.00000"):
        assert text in shown
    assert "q8, no feedback" in shown and "50.00%" in shown


def test_the_example_trains_what_the_benchmark_offers() -> None:
    assert set(codecs_torch.CASES) == set(codec_training.MODELS)
    assert (codecs_torch.CODINGS, codecs_torch.PLAIN) == (codec_training.CODINGS, codec_training.PLAIN)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "digit"], "--model 'digit' cannot be used"),
        (["--model", ","], "--model '' cannot be used"),
        (["--codecs", "none,q7"], "--codecs 'q7' cannot be used"),
        (["--codecs", "none_plain"], "--codecs 'none_plain' cannot be used"),
        (["--ranks", "1"], "--ranks 1 cannot be used"),
        (["--ranks", "65"], "--ranks 65 cannot be used"),
        (["--seeds", "0"], "--seeds 0 cannot be used"),
        (["--steps", "0"], "--steps 0 cannot be used"),
        (["--time-limit-s", "nan"], "--time-limit-s nan cannot be used"),
    ],
)
def test_bad_input_is_named(arguments: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        CliRunner().invoke(bench.bench_command, ["codecs", *arguments], catch_exceptions=False)


def test_horovods_own_collective_takes_no_codec() -> None:
    done = CliRunner().invoke(bench.bench_command, ["codecs", "--collective", "gloo"])
    assert done.exit_code == 2 and "gloo" in done.output


def test_the_command_that_is_told_repeats_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def compare(*given: Any) -> dict[str, Any]:
        asked.append((*given[:6], given[7]))
        return codec_training.summary(RESULTS)

    monkeypatch.setattr(codec_training, "compare", compare)
    arguments = ["--model", "digits,digits", "--codecs", "none,trunc16_plain,none", "--steps", "3", "--seeds", "2"]
    for _ in range(2):
        done = CliRunner().invoke(bench.bench_command, ["codecs", *arguments, "--json"], catch_exceptions=False)
        told = json.loads(done.stdout)["command"]
        arguments = told.removeprefix("python -m examples.benchmarks codecs ").split()
    assert asked[0] == asked[1] == ("digits", ("none", "trunc16_plain"), 2, 2, "direct", 3, 3600.0)
    assert told == (
        "python -m examples.benchmarks "
        "codecs --model digits --codecs none,trunc16_plain --seeds 2 --ranks 2 --collective direct"
        " --steps 3 --time-limit-s 3600"
    )
