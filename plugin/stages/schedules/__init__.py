"""Registry of stage schedules. To add one, write its file in this folder and a line here."""

from __future__ import annotations

from paceline.errors import UserError
from paceline.stages.schedule import Schedule as Schedule
from paceline.stages.schedules.eager_pipemare import EagerPipeMare
from paceline.stages.schedules.gpipe import GPipe
from paceline.stages.schedules.one_f_one_b import OneFOneB
from paceline.stages.schedules.pipedream import PipeDream
from paceline.stages.schedules.pipemare import PipeMare
from paceline.stages.schedules.two_bw import TwoBW

_ALL: tuple[type[Schedule], ...] = (GPipe, OneFOneB, PipeDream, TwoBW, PipeMare, EagerPipeMare)
SCHEDULES = {one.name: one for one in _ALL}


def make(name: str, stages: int, microbatches: int) -> Schedule:
    """Return the schedule `name` for `stages` stages, and `microbatches` micro-batches per mini-batch.

    Raises UserError for an unknown name and for numbers below 1.
    """
    if name not in SCHEDULES:
        raise UserError(f"There is no schedule {name!r} of stages.", f"Choose one of {', '.join(SCHEDULES)}.")
    return SCHEDULES[name](stages, microbatches)
