"""The script that benchmarks of codecs train, on two ranks, with and without error feedback."""

from __future__ import annotations

import pytest

from integration_tests.support.debug import debug
from integration_tests.support.examples import printed, results
from integration_tests.support.ranks import run_ranks

pytestmark = pytest.mark.more

CODINGS = "none,q8,q8_plain"


def _said(rank: int, size: int, model: str) -> list[str]:
    words = ["--model", model, "--codings", CODINGS, "--seeds", "1", "--steps", "120"]
    return printed("benchmarks.codecs_torch", words)


def test_uneven_ranks_end_where_they_would_without_codec_if_errors_are_fed_back() -> None:
    env = {"PACELINE_COLLECTIVE": "direct", **debug(codec_least_bytes=0), "HOROVOD_FUSION_THRESHOLD": "0"}
    (first,), (second,) = run_ranks(_said, 2, "uneven", env=env, fresh=True)
    assert second == "", "rank 0 speaks"
    found = results(first)
    assert ",".join(one["coding"] for one in found) == CODINGS and all(one["equal"] for one in found)
    loss = {one["coding"]: one["loss"] for one in found}
    off, plain_off = (abs(loss[name] - loss["none"]) for name in ("q8", "q8_plain"))
    # The losses are float32: they differ by some last digits, which ones depends on the processor.
    assert 0 < off < plain_off / 4, "q8 rounds, and what it loses is made up for"
