"""`paceline doctor` tries every exchange with two real ranks."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from paceline.config import EXCHANGES
from paceline.horovod.key import installed_frameworks


@pytest.mark.timeout(400)
def test_every_exchange_is_tried_with_every_framework() -> None:
    words = [sys.executable, "-m", "paceline.launch.cli", "doctor", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=380)
    found = {one["what"]: one for one in json.loads(done.stdout)}
    for framework in installed_frameworks():
        finding = found[f"2 ranks with {framework}"]
        assert finding["severity"] == "ok", finding
        assert finding["found"] == f"exchanges that work: {', '.join(EXCHANGES)}"
