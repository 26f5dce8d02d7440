"""All papers, and their results."""

from __future__ import annotations

from paceline.examples.reproduction import eager_sgd, linear_pipelining, mg_wfbp, pipe_sgd, pipemare
from paceline.examples.reproduction.rows import Paper, Result, result

PAPERS = (mg_wfbp.PAPER, pipe_sgd.PAPER, eager_sgd.PAPER, linear_pipelining.PAPER, pipemare.PAPER)


def results() -> list[tuple[Paper, list[Result]]]:
    """Recompute all rows."""
    return [(paper, [result(row) for row in paper.rows]) for paper in PAPERS]
