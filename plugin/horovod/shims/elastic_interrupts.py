"""Elastic jobs: ranks go on from where a change of hosts interrupts them, not from their last commit.

After an interrupt Horovod broadcasts the weights as they are, but the counters of the last commit: the steps since then
would be repeated on weights that have them.
"""

from __future__ import annotations

from typing import Any

from horovod.common.exceptions import HorovodInternalError


def keep(state: Any) -> bool:
    """Commit the state of an interrupted rank. Returns False if a rank was lost meanwhile: the last commit holds."""
    try:
        state.save()
    except HorovodInternalError:
        state.restore()
        return False
    return True
