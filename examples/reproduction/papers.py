"""All papers and all rows of our own, and their results."""

from __future__ import annotations

from paceline.examples.reproduction import (
    eager_sgd,
    linear_pipelining,
    mg_wfbp,
    own_network,
    own_ranks,
    own_steps,
    pipe_sgd,
    pipemare,
)
from paceline.examples.reproduction.own import OwnResult
from paceline.examples.reproduction.rows import Paper, Result, result

PAPERS = (mg_wfbp.PAPER, pipe_sgd.PAPER, eager_sgd.PAPER, linear_pipelining.PAPER, pipemare.PAPER)


def results() -> list[tuple[Paper, list[Result]]]:
    """Recompute all rows."""
    return [(paper, [result(row) for row in paper.rows]) for paper in PAPERS]


def own_results() -> list[OwnResult]:
    """Simulate all rows of our own, kind by kind."""
    rows = (*own_steps.rows(), *own_ranks.rows(), *own_network.rows())
    return [OwnResult(row, row.measured(), row.simulated()) for row in rows]
