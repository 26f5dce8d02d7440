"""Version of the weights in each pass of a stage: the number of the stage's earlier updates.

It depends only on the order of a stage's instructions, not on their times.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.stages.instructions import Instruction, Kind
from paceline.stages.schedule import Schedule


def versions(schedule: Schedule, program: Sequence[Instruction]) -> list[int]:
    """Return, for each instruction of one stage, the version that a pass uses or that an UPDATE is applied to."""
    updates = 0
    forwards: dict[tuple[int, int], int] = {}
    found = []
    for one in program:
        version = updates
        if one.kind is Kind.FORWARD:
            version = schedule.forward_version(one.minibatch, updates)
            forwards[one.minibatch, one.microbatch] = version
        elif one.kind is Kind.BACKWARD:
            version = schedule.backward_version(forwards[one.minibatch, one.microbatch], updates)
        else:
            updates += 1
        found.append(version)
    return found


def copies(program: Sequence[Instruction], used: Sequence[int]) -> int:
    """Return the maximum number of versions at once, if each is dropped after its last use; `used`: from `versions`."""
    last_use = {version: place for place, version in enumerate(used)}
    kept = {0}
    newest = 0
    most = 1
    for place, one in enumerate(program):
        newest += one.kind is Kind.UPDATE
        kept = {version for version in kept if last_use.get(version, -1) > place} | {newest}
        most = max(most, len(kept))
    return most


def activations(program: Sequence[Instruction]) -> int:
    """Return the maximum number of micro-batches with activations, from the start of FORWARD to the end of BACKWARD."""
    held = most = 0
    for one in program:
        held += one.kind is Kind.FORWARD
        most = max(most, held)
        held -= one.kind is Kind.BACKWARD
    return most
