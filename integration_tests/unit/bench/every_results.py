"""Results as rows of `python -m examples.benchmarks all` keep them: small ones, made by the reports of the commands."""

from __future__ import annotations

from typing import Any

from integration_tests.unit.bench import (
    scale_results,
    test_codecs,
    test_collectives,
    test_partial,
    test_pipeline,
    test_report,
)
from paceline.examples.benchmarks.every.kept import Measured
from paceline.examples.benchmarks.every.rows import Row
from paceline.examples.benchmarks.harness import codec_training, report, skew_report
from paceline.examples.benchmarks.stages import report as stages_report

MACHINE = {
    "processor": "a processor",
    "cores": 2,
    "kernel": "6.1.7-of-here",
    "tcp": "cubic",
    "load_average": 0.25,
    "versions": {"python": "3.11", "paceline": "0.1", "horovod": "0.28.1", "torch": None},
}


def result(benchmark: str) -> dict[str, Any]:
    """One result of a benchmark."""
    made: dict[str, Any]
    if benchmark in ("baseline", "fusion", "pipelined"):
        made = report.as_json(test_report.merged(), 2, "1gbit", {}, "")
    elif benchmark == "collectives":
        made = test_collectives.result(test_collectives.compared())
    elif benchmark == "codecs":
        made = {"model": "digits", "ranks": 2, "collective": "direct", **codec_training.summary(test_codecs.RESULTS)}
    elif benchmark == "pipeline":
        made = stages_report.as_json(test_pipeline.compared(), {}, "")
    elif benchmark == "scale":
        (made,) = scale_results.results(2)
    else:
        made = skew_report.as_json(test_partial.PLAN, 64, test_partial.samples(test_partial.PLAN), {}, "")
    return {**made, "machine": MACHINE, "command": "the command"}


def measured(row: Row, begun: str = "2026-11-23T22:47:03Z", results: int = 1, quick: bool = False) -> Measured:
    """A row whose command printed so many of them."""
    found = tuple(result(row.benchmark) for _ in range(results))
    return Measured(row.name, "python -m examples.benchmarks of this row", begun, 61.4, quick, MACHINE, found)
