"""`paceline doctor` tries every exchange, collective and codec with two real ranks."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from paceline.config import EXCHANGES
from paceline.horovod.key import installed_frameworks


@pytest.mark.more
@pytest.mark.timeout(400)
def test_every_choice_is_tried_with_every_framework() -> None:
    words = [sys.executable, "-m", "paceline.launch.cli", "doctor", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=380)
    found = {one["what"]: one for one in json.loads(done.stdout)}
    for framework in installed_frameworks():
        exchanges = ", ".join(one for one in EXCHANGES if one != "split" or framework == "torch")
        finding = found[f"2 ranks with {framework}"]
        assert finding["severity"] == "ok", finding
        for works in (
            f"exchanges that work: {exchanges}; ",
            "collectives that work: linear, ring, direct, doubling, auto",
            "codecs that work: bf16, q8, q4",
        ):
            assert works in finding["found"]
