"""Ranks that run for programs of other projects: the back end for PARAM, and lists of gradients."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.ranks import ranks
from paceline.examples.benchmarks.outside import lists
from paceline.examples.benchmarks.outside.benchmark import checked
from paceline.examples.benchmarks.outside.jobs import Jobs
from paceline.examples.benchmarks.outside.param_ranks import back_end
from paceline.examples.benchmarks.outside.program import Run
from paceline.examples.benchmarks.outside.programs import PROGRAMS
from paceline.examples.benchmarks.outside.settings import Settings


class Base:
    """Interface that PARAM gives its back ends, as far as ours calls it."""

    def initialize_backend(self, master_ip: str, master_port: str, backend: str = "gloo") -> None:
        assert (master_ip, backend) == ("host0", "gloo"), "torch.distributed's own part runs over Gloo"


@ranks(2, 3)
def test_params_back_end_sums_and_broadcasts_in_place(rank: int, size: int) -> None:
    made: Any = back_end(Base)()
    made.initialize_backend("host0", "1", backend="horovod")
    arguments = SimpleNamespace(asyncOp=False, waitObj=[], srcOrDst=size - 1)
    arguments.ipTensor = torch.full((1237,), float(rank + 1))
    assert made.all_reduce(arguments) is None
    assert torch.equal(arguments.ipTensor, torch.full((1237,), size * (size + 1) / 2))
    arguments.asyncOp, arguments.opTensor = True, torch.full((31,), float(rank))
    work = made.broadcast(arguments, retFlag=True)
    assert arguments.waitObj == [work]
    work.wait()
    assert torch.equal(arguments.opTensor, torch.full((31,), size - 1.0))
    hvd.barrier()


@pytest.mark.parametrize("system", ["stock", "torch", "direct+q8"])
def test_lists_of_gradients_are_averaged_and_timed(system: str) -> None:
    _, settings = checked(Settings(program="kungfu", hosts=1, warm_up=1, steps=3))
    run = Run(Path("/"), system, "resnet50", settings)
    words = lists.messages(run, [1000, 7, 40961])
    output = Jobs(2, None).run(words, PROGRAMS["kungfu"].systems[system], 100.0)
    figures = lists.figures(output)
    assert figures["messages"] == 3 and figures["time_ms"] > 0
