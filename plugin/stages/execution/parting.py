"""Common end of a pipeline's ranks: no rank leaves before all have received their messages.

The first rank to call hvd.shutdown() ends Horovod on all ranks, and their messages with it.
"""

from __future__ import annotations

import contextlib

from paceline.native.communicator import HorovodEnded
from paceline.stages.execution.posting import Post, Tag


def part(post: Post) -> None:
    """Wait until all messages were sent, on all ranks; each may call hvd.shutdown() then.

    Raises StageLost, which names it, if a rank does not come here within the communicator's limit.
    """
    post.finish()
    _all_come(post)
    # A rank that left now could end Horovod while rank 0's reply is in flight to others. So the ranks meet again: here
    # all have finished, and nothing is lost if Horovod ends.
    with contextlib.suppress(HorovodEnded):
        _all_come(post)


def _all_come(post: Post) -> None:
    if post.communicator.rank == 0:
        others = range(1, post.communicator.size)
        post.wait([post.receive_bytes(other, Tag.PARTING, bytearray(1)) for other in others])
        for other in others:
            post.send_bytes(other, Tag.PARTING, b".")
    else:
        post.send_bytes(0, Tag.PARTING, b".")
        post.wait([post.receive_bytes(0, Tag.PARTING, bytearray(1))])
    post.finish()
