"""Does training with pipelined gradients end where synchronous training does? Tables for several seeds and examples.

    python examples/compare_exchanges.py --seeds 5 --ranks 2,4 --examples digits_torch,characters_torch

Runs each example with every exchange and every seed, one run at a time, and prints a markdown table of the final loss
and accuracy on data that no rank trained on: means, standard deviations over the seeds, and how far a mean is from that
of the synchronous exchange, in standard deviations (the root of the mean of both variances). All else is the same:
steps, batches, learning rate, first weights. The exchanges: synchronous, pipelined, and pipelined with the correction
for stale gradients (docs/pipelined.md), which --correction 0 leaves out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.errors import UserError
from paceline.launch import run

SYNC, PIPELINED, CORRECTED = "sync", "pipelined", "pipelined, corrected"
EXAMPLES = ("digits_torch", "digits_keras", "characters_torch", "characters_keras", "characters_tensorflow")
LAST_LINES = 20  # of a failed run's output

# What rank 0 of every example prints at the end; horovodrun puts a mark in front of it.
_RESULT = re.compile(r"RESULT (\{.*\})$")
_MARK = re.compile(r"^\[(?:\d+,)?\d+\]<std(?:out|err)>:")

# (example, ranks, exchange) -> the results of all seeds
Results = dict[tuple[str, int, str], list[dict[str, Any]]]


def environment(exchange: str, k: int, warmup_steps: int, correction: float) -> dict[str, str]:
    """Variables for the ranks: the exchange, so that it can be any script, and one thread each."""
    ours = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    chosen = {
        "PACELINE_EXCHANGE": SYNC if exchange == SYNC else PIPELINED,
        "PACELINE_PIPELINE_K": str(k),
        "PACELINE_PIPELINE_WARMUP_STEPS": str(warmup_steps),
        "PACELINE_PIPELINE_CORRECTION": str(correction if exchange == CORRECTED else 0),
    }
    return {**ours, **os.environ, **chosen}


def result_in(line: str) -> dict[str, Any] | None:
    """The result that a line of an example's output tells, if it does."""
    found = _RESULT.search(line)
    return json.loads(found[1]) if found else None


def train(
    script: Path, ranks: int, arguments: Sequence[str], environ: dict[str, str], limit_s: float
) -> dict[str, Any]:
    """Run `script` on `ranks` ranks; its result. Raises UserError with its last words if it ends without one."""
    lines: list[str] = []
    words = [*run.horovodrun(), "-np", str(ranks), sys.executable, str(script), *arguments]
    code = run.call(words, environ, on_line=lines.append, limit_s=limit_s)
    found = [result for result in map(result_in, lines) if result is not None]
    if code != 0 or len(found) != 1:
        # horovodrun's own traceback comes last and says nothing; what the ranks said is marked.
        said = "\n".join([line for line in lines if _MARK.match(line)][-LAST_LINES:] or lines[-LAST_LINES:])
        raise UserError(
            f"{script.name} ended with code {code} and {len(found)} results:\n{said}", "Look at what its ranks said."
        )
    (result,) = found
    if not result["equal"]:
        raise UserError(f"{script.name}: the replicas on the ranks are not equal.", "Report this as a defect.")
    return result


def _spread(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _cells(values: Sequence[float], sync: Sequence[float], form: str) -> tuple[str, str]:
    """Mean and standard deviation of `values`, and how far from `sync` they are."""
    spreads = [_spread(one) for one in (values, sync)]
    common = statistics.mean(spread**2 for spread in spreads) ** 0.5
    apart = statistics.mean(values) - statistics.mean(sync)
    return f"{statistics.mean(values):{form}} ± {spreads[0]:{form}}", f"{apart / common:+.1f}" if common > 0 else "-"


def table(results: Results) -> str:
    """The results as a markdown table, a row for each example, number of ranks and exchange."""
    columns = ["example", "ranks", "exchange", "loss", "from sync (sd)", "accuracy", "from sync (sd)"]
    rows = [columns, ["---"] * 3 + ["---:"] * (len(columns) - 3)]
    for (example, ranks, exchange), found in sorted(results.items(), key=lambda one: one[0][:2]):
        sync = results[example, ranks, SYNC]
        cells = [example, str(ranks), exchange]
        for value, form in (("loss", ".4f"), ("accuracy", ".2%")):
            mean, apart = _cells([one[value] for one in found], [one[value] for one in sync], form)
            cells += [mean, "" if exchange == SYNC else apart]
        rows.append(cells)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> int:
    """Run all, print the table; 1 if a run failed."""
    parser = argparse.ArgumentParser(description="Compare the synchronous and the pipelined exchange on the examples.")
    parser.add_argument("--examples", default=",".join(EXAMPLES), help="names in examples/ or paths (default: all)")
    parser.add_argument("--ranks", default="2", help="numbers of ranks (default: 2)")
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds, from 0 (default: 5)")
    parser.add_argument("--k", type=int, default=2, help="iteration dependency K (default: 2)")
    parser.add_argument("--warmup-steps", type=int, default=0, help="updates that are synchronous first")
    parser.add_argument("--correction", type=float, default=0.01, help="PACELINE_PIPELINE_CORRECTION (default: 0.01)")
    parser.add_argument("--limit-s", type=float, default=900.0, help="time limit of one run (default: 900)")
    parser.add_argument("arguments", nargs="*", help="after --: more for every script, such as --steps 1000")
    chosen = parser.parse_args()

    exchanges = (SYNC, PIPELINED, CORRECTED) if chosen.correction else (SYNC, PIPELINED)
    results: Results = {}
    try:
        for example in chosen.examples.split(","):
            script = Path(example) if example.endswith(".py") else Path(__file__).with_name(f"{example}.py")
            for ranks in map(int, chosen.ranks.split(",")):
                for seed in range(chosen.seeds):
                    for exchange in exchanges:
                        result = train(
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
        # Also when a later run fails: what has ended took long.
        if results:
            print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
