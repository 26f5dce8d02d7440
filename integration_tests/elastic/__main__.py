"""Elastic trainings through random joins, leaves and kills: their accuracy is that of undisturbed ones.

    python -m integration_tests.elastic --runs 20
    python -m integration_tests.elastic --runs 2 --framework torch --exchange pipelined

Runs take the exchanges of both frameworks in turn; each draws its changes from its seed. For each exchange that is
among them, undisturbed trainings of 2 and of 4 ranks make the band: their mean accuracy, and three standard deviations
(at least one test image) on either side. Exits with 1 if a run is outside the band, does not end, loses or doubles
contributions, or if a change did not happen.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from integration_tests.elastic.jobs import EXCHANGES, Run, run
from integration_tests.elastic.schedule import LEAST, MOST, drawn, undisturbed

SEEDS_OF_BAND = 4
TEST_IMAGES = 360  # a fifth of scikit-learn's 1797
WIDTH = 3.0

Band = tuple[float, float]


def band(accuracies: Sequence[float]) -> Band:
    """Mean, with WIDTH standard deviations on either side."""
    mean, spread = statistics.mean(accuracies), max(statistics.stdev(accuracies), 1 / TEST_IMAGES)
    return mean - WIDTH * spread, min(1.0, mean + WIDTH * spread)


def band_of(framework: str, exchange: str, seed: int, console: Console) -> tuple[Band, list[Run]]:
    """Run undisturbed trainings; return their band, and those with problems."""
    seeds = range(1000 + seed, 1000 + seed + SEEDS_OF_BAND)
    runs = [one for size in (LEAST, MOST) for one in run(framework, exchange, undisturbed(size), seeds)]
    for one in runs:
        for problem in one.problems:
            console.print(f"{framework}, {exchange}, undisturbed: {problem}", markup=False, soft_wrap=True)
    found = band([one.accuracy for one in runs])
    text = f"undisturbed: {framework}, {exchange}: {found[0]:.4f} to {found[1]:.4f} ({len(runs)} trainings)"
    console.print(text, markup=False, soft_wrap=True)
    return found, [one for one in runs if one.problems]


def read_bands(path: Path | None) -> dict[tuple[str, str], Band]:
    """Bands that an earlier command has kept, by framework and exchange."""
    if path is None or not path.exists():
        return {}
    return {(framework, exchange): (low, high) for framework, exchange, low, high in json.loads(path.read_text())}


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--framework", default="", choices=["", *EXCHANGES])
    parser.add_argument("--exchange", default="", choices=["", *EXCHANGES["torch"]])
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first run, to go on with an earlier command"
    )
    parser.add_argument("--bands", type=Path, help="file that keeps the bands for the next command")
    arguments, console = parser.parse_args(), Console(width=160)
    kinds = [
        (framework, exchange)
        for framework, exchanges in EXCHANGES.items()
        for exchange in exchanges
        if arguments.framework in ("", framework) and arguments.exchange in ("", exchange)
    ]
    bands = read_bands(arguments.bands)
    runs, bad = [], 0
    for number in range(arguments.first, arguments.first + arguments.runs):
        kind, seed = kinds[number % len(kinds)], arguments.seed + number
        if kind not in bands:
            bands[kind], wrong = band_of(*kind, arguments.seed, console)
            bad += len(wrong)
            if arguments.bands is not None and not wrong:
                arguments.bands.write_text(json.dumps([[*key, *value] for key, value in bands.items()]))
        (one,) = run(*kind, drawn(seed), [seed])
        low, high = bands[kind]
        if not one.problems and not low <= one.accuracy <= high:
            one.problems.append(f"accuracy {one.accuracy:.4f} is outside {low:.4f} to {high:.4f}")
        runs.append(one)
        text = f"{'FAILED' if one.problems else 'ok    '} {', '.join(kind)}, seed {seed}: {one.schedule}"
        console.print("\n    ".join([text, *one.problems]), markup=False, highlight=False, soft_wrap=True)
    console.print(_table(runs, bands))
    return 1 if bad or any(one.problems for one in runs) else 0


def _table(runs: Sequence[Run], bands: dict[tuple[str, str], Band]) -> Table:
    made = Table("training", "ranks", "accuracy", "band", "loss", "contributions", "of", "s", "")
    for one in runs:
        low, high = bands[one.framework, one.exchange]
        made.add_row(
            f"{one.framework}, {one.exchange}", str(one.schedule), f"{one.accuracy:.4f}", f"{low:.4f} to {high:.4f}",
            f"{one.loss:.4f}", f"{one.count:g}", str(one.expected), f"{one.took_s:.0f}",
            "FAILED" if one.problems else "ok",
        )  # fmt: skip
    return made


if __name__ == "__main__":
    sys.exit(main())
