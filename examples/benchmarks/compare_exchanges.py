"""Does training with another exchange end where synchronous training does? Tables for several seeds and examples.

    python examples/benchmarks/compare_exchanges.py --seeds 5 --ranks 2,4 --examples digits_torch,characters_torch

Runs each example with every exchange and every seed, one run at a time, and prints a markdown table of the final loss
and accuracy on data that no rank trained on: means, standard deviations over the seeds, and how far a mean is from that
of the synchronous exchange, in standard deviations (the root of the mean of both variances). All else is the same:
steps, batches, learning rate, first weights. The exchanges that --exchanges chooses among: sync; pipelined; corrected,
which is pipelined with the correction for stale gradients (docs/methods/pipelined.md) and which --correction 0 leaves
out; own, whose passes use weights moved by the rank's own gradient;
majority and solo, which do not wait for late ranks (docs/methods/partial.md); local, which averages models
(docs/methods/local.md).
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.errors import UserError
from paceline.launch import runs

SYNC, CORRECTED, OWN = "sync", "corrected", "own"
# Name for --exchanges -> name in the table.
EXCHANGES = {
    SYNC: SYNC,
    "pipelined": "pipelined",
    CORRECTED: "pipelined, corrected",
    OWN: "pipelined, own",
    "majority": "majority",
    "solo": "solo",
    "local": "local",
}
DEFAULT = (SYNC, "pipelined", CORRECTED)
EXAMPLES_FOLDER = Path(__file__).parents[1]
EXAMPLES = ("digits_torch", "digits_keras", "characters_torch", "characters_keras", "characters_tensorflow")

# (example, ranks, exchange) -> the results of all seeds
Results = dict[tuple[str, int, str], list[dict[str, Any]]]


def environment(exchange: str, k: int, warmup_steps: int, correction: float) -> dict[str, str]:
    """Variables for the ranks, for an exchange of EXCHANGES."""
    return runs.environment(
        exchange="pipelined" if exchange in (CORRECTED, OWN) else exchange,
        pipelined_k=k,
        pipelined_warmup_steps=warmup_steps,
        pipelined_correction={CORRECTED: correction, OWN: OWN}.get(exchange, 0.0),
    )


def _cells(values: Sequence[float], sync: Sequence[float], form: str) -> tuple[str, str]:
    """Mean and standard deviation of `values`, and their distance from `sync`."""
    apart = runs.apart(values, sync)
    found = f"{statistics.mean(values):{form}} ± {runs.spread(values):{form}}"
    return found, "-" if apart is None else f"{apart:+.1f}"


def table(results: Results) -> str:
    """Return the results as a markdown table, a row for each example, number of ranks and exchange."""
    columns = ["example", "ranks", "exchange", "loss", "from sync (sd)", "accuracy", "from sync (sd)"]
    rows = [columns, ["---"] * 3 + ["---:"] * (len(columns) - 3)]
    for (example, ranks, exchange), found in sorted(results.items(), key=lambda one: one[0][:2]):
        sync = results.get((example, ranks, SYNC))
        cells = [example, str(ranks), EXCHANGES[exchange]]
        for value, form in (("loss", ".4f"), ("accuracy", ".2%")):
            mean, apart = _cells([one[value] for one in found], [one[value] for one in sync or found], form)
            cells += [mean, "" if exchange == SYNC or sync is None else apart]
        rows.append(cells)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> int:
    """Run all examples and print the table. Return 1 if a run failed."""
    parser = argparse.ArgumentParser(description="Compare exchanges on the examples.")
    parser.add_argument("--examples", default=",".join(EXAMPLES), help="names in examples/ or paths (default: all)")
    parser.add_argument("--ranks", default="2", help="numbers of ranks (default: 2)")
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds, from 0 (default: 5)")
    parser.add_argument(
        "--exchanges", default=",".join(DEFAULT), help=f"of {', '.join(EXCHANGES)} (default: %(default)s)"
    )
    parser.add_argument("--k", type=int, default=2, help="iteration dependency K (default: 2)")
    parser.add_argument("--warmup-steps", type=int, default=0, help="updates that are synchronous first")
    parser.add_argument("--correction", type=float, default=0.01, help="PACELINE_PIPELINED_CORRECTION (default: 0.01)")
    parser.add_argument("--limit-s", type=float, default=900.0, help="time limit of one run (default: 900)")
    parser.add_argument("arguments", nargs="*", help="after --: more for every script, such as --steps 1000")
    chosen = parser.parse_args()

    exchanges = [one for one in chosen.exchanges.split(",") if one != CORRECTED or chosen.correction]
    for exchange in exchanges:
        if exchange not in EXCHANGES:
            parser.error(f"argument --exchanges: {exchange!r} is none of {', '.join(EXCHANGES)}")
    results: Results = {}
    try:
        for example in chosen.examples.split(","):
            script = Path(example) if example.endswith(".py") else EXAMPLES_FOLDER / f"{example}.py"
            for ranks in map(int, chosen.ranks.split(",")):
                for seed in range(chosen.seeds):
                    for exchange in exchanges:
                        result = runs.train(
                            script,
                            ranks,
                            ["--seed", str(seed), *chosen.arguments],
                            environment(exchange, chosen.k, chosen.warmup_steps, chosen.correction),
                            chosen.limit_s,
                        )
                        results.setdefault((script.stem, ranks, exchange), []).append(result)
                        said = f"loss {result['loss']:.4f} accuracy {result['accuracy']:.2%}"
                        print(f"{script.stem}, {ranks} ranks, seed {seed}, {exchange}: {said}", file=sys.stderr)
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        # Also when a later run fails: the finished runs took long.
        if results:
            print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
