"""The programs by name."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.config import nearest
from paceline.errors import UserError
from paceline.examples.benchmarks.outside import gloo, lists, param, synthetic
from paceline.examples.benchmarks.outside.program import Program

PROGRAMS: Mapping[str, Program] = {
    "param": param.PROGRAM,
    "gloo": gloo.PROGRAM,
    "horovod_torch": synthetic.TORCH_PROGRAM,
    "horovod_keras": synthetic.KERAS_PROGRAM,
    "kungfu": lists.KUNGFU_PROGRAM,
    "chakra": lists.CHAKRA_PROGRAM,
}


def find(name: str) -> Program:
    """Return a program. Raises UserError for an unknown name."""
    if name not in PROGRAMS:
        raise UserError(f"There is no program {name!r}.", nearest(name, list(PROGRAMS)))
    return PROGRAMS[name]
