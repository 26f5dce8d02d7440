"""What `paceline bench codecs` trains: every coding gives other bits, all end with equal replicas; two ranks."""

from __future__ import annotations

import contextlib
import io
import sys

from integration_tests.support.ranks import run_ranks
from paceline.launch import runs
from paceline.launch.benchmarks import codec_training

STEPS = 40


def _said(rank: int, size: int, model: str) -> str:
    """What the example prints."""
    from paceline.examples import codecs_torch

    sys.argv = ["codecs_torch", "--model", model, "--seeds", "2", "--steps", str(STEPS)]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        codecs_torch.main()
    return output.getvalue()


def test_uneven_ranks_end_where_they_would_without_codec_if_errors_are_fed_back() -> None:
    env = {"PACELINE_COLLECTIVE": "direct", "PACELINE_CODEC_LEAST_BYTES": "0"}
    first, second = run_ranks(_said, 2, "uneven", env=env, fresh=True, timeout_s=100)
    assert second == "", "rank 0 speaks"
    results = [result for result in map(runs.result_in, first.splitlines()) if result is not None]
    assert [one["coding"] for one in results] == list(codec_training.CODINGS) * 2
    assert len({one["loss"] for one in results[:4]}) == 4, "every coding rounds, in its own way"
    codings = codec_training.summary(results)["codings"]
    off = {name: abs(one["loss"]["paired"]["mean"]) for name, one in codings.items() if name != "none"}
    assert off["q8"] < off["q8_plain"] / 3 and off["bf16"] < off["q8_plain"] / 3, off
