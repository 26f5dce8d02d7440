"""What `python -m examples.benchmarks scale` takes and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from paceline.errors import UserError
from paceline.examples.benchmarks.commands import command as bench
from paceline.examples.benchmarks.commands import scale as bench_scale
from paceline.examples.benchmarks.scale import memory

OPTIONS = {"tensors": 64, "parts": 4, "time_limit_s": 20.0, "turns": 3}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ranks", "1"], "--ranks 1 cannot be used. Give 2 to 64"),
        (["--ranks", "2,x"], "--ranks 2,x"),
        (["--ranks", "2,65"], "--ranks 2,65"),
        (["--ranks", "4..2"], "the range is empty"),
        (["--systems", "cache"], "Did you mean cached?"),
        (["--tensors", "1"], "--tensors 1"),
        (["--parts", "1"], "--parts 1"),
        (["--tensors", "4", "--parts", "5"], "--parts 5 cannot be used. Give 2 to 4"),
        (["--size", "64"], "--size 64"),
        (["--size", "big"], "'big'"),
        (["--latency", "50"], "it has no unit"),
        (["--latency", "2s"], "--latency 2s"),
        (["--plot", "scale.txt"], ".txt"),
        (["--plot", "nowhere/scale.png"], "nowhere"),
        (["--time-limit-s", "nan"], "--time-limit-s nan"),
        (["--turns", "0"], "--turns 0"),
    ],
)
def test_bad_input_is_named(words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(bench.bench_command, ["scale", *words])
    assert isinstance(done.exception, UserError) and said in f"{done.exception.problem} {done.exception.remedy}"


def test_more_ranks_than_there_is_memory_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 3 * 10**9)
    done = CliRunner().invoke(bench.bench_command, ["scale", "--ranks", "2,32"])
    needed = f"{memory.needed_bytes(32, 4) / 1e9:.1f} GB"
    assert isinstance(done.exception, UserError)
    assert f"32 ranks of 4 systems need about {needed} of memory; 3.0 GB" in done.exception.problem


def test_a_request_says_how_to_ask_for_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    request = bench_scale.requested("8,2,8", "armed,cached", "1KiB", "50us", Path("s.png"), **OPTIONS)
    assert request.ranks == (2, 8) and bench_scale.latency_s(request.latency) == pytest.approx(5e-5)
    assert request.command == (
        "python -m examples.benchmarks "
        "scale --ranks 2,8 --systems armed,cached --tensors 64 --parts 4 --size 1KiB --latency 50us"
        " --plot s.png --time-limit-s 20 --turns 3"
    )
    request = bench_scale.requested("2..4", None, "256", None, None, **OPTIONS)
    assert request.ranks == (2, 3, 4) and request.systems == ("uncached", "cached", "events", "armed")
    assert "--latency" not in request.command and bench_scale.latency_s(None) == 0
