"""How long a job takes from its start to its first steps: `paceline rank` beside horovodrun, in turn, on loopback.

    python -m integration_tests.starts --turns 5 --ranks 2

Prints medians in seconds, of the start until the last rank has reduced three times. docs/guides/launching.md has
figures.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time

from integration_tests.ranks.launch.test_rank import SCRIPT, Job, reports
from paceline.examples.benchmarks.harness.ratio import over
from paceline.examples.benchmarks.harness.turn import Turn
from paceline.examples.benchmarks.harness.turns import Limits, compare
from paceline.launch import horovodrun


def under_rank(ranks: int) -> float:
    """Tasks as torchrun would start them, each becoming a rank."""
    begin_s = time.time()
    found = reports(Job("torchrun", ranks).ends())
    return max(float(str(one["time"])) for one in found) - begin_s


def under_horovodrun(ranks: int) -> float:
    begin_s = time.time()
    words = [*horovodrun.words(), "-np", str(ranks), sys.executable, str(SCRIPT)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    return max(json.loads(text)["time"] for text in re.findall(r"REPORT (\{.*\})", done.stdout)) - begin_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    arguments = parser.parse_args()
    takes = {
        name: lambda start=start: Turn({"s": start(arguments.ranks)})
        for name, start in (("paceline rank", under_rank), ("horovodrun", under_horovodrun))
    }
    ratio = over("paceline rank", "horovodrun", "s")
    limits = Limits(float("inf"), arguments.turns, settles=False)
    found = compare(takes, "s", [ratio], limits, lambda text: print(text, flush=True), "starts")
    for name, turns in found.turns.items():
        those = [turn["s"] for turn in turns]
        print(f"{name}: median {statistics.median(those):.2f} s ({min(those):.2f} to {max(those):.2f})")


if __name__ == "__main__":
    main()
