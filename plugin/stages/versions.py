"""Which version of its weights each pass of a stage is at: the number of the stage's updates before.

It follows from the order of a stage's instructions alone, whatever they take.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.stages.instructions import Instruction, Kind
from paceline.stages.schedule import Schedule


def versions(schedule: Schedule, program: Sequence[Instruction]) -> list[int]:
    """For each instruction of one stage: the version that a pass is at, or that an UPDATE is applied to."""
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
    """Versions that exist at once at most, if each is dropped after its last use; `used` is what `versions` found."""
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
    """Micro-batches at most whose activations are kept, from the beginning of FORWARD to the end of BACKWARD."""
    held = most = 0
    for one in program:
        held += one.kind is Kind.FORWARD
        most = max(most, held)
        held -= one.kind is Kind.BACKWARD
    return most
