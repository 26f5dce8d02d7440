"""Agreement of all ranks of a pipeline on its arguments, before any other message."""

from __future__ import annotations

import json
import struct
from typing import Any

from paceline.errors import UsageError, UserError
from paceline.stages.execution.posting import Post, Tag

_SIZE = struct.Struct("<q")
# Key for a rank's error, in place of terms.
_REFUSED = "refused"


def meet(post: Post, terms: dict[str, Any] | Exception, own: Any = None, doing: str = "build its stage") -> list[Any]:
    """Wait for all ranks to call this with the same `terms`; return each rank's `own`.

    A rank that could not compute its terms passes the error; `doing` describes that work. The error is raised on that
    rank, and UsageError on all others; UsageError on all ranks if terms differ. The ranks can try again.
    """
    mine = json.dumps([{_REFUSED: _problem_and_remedy(terms)} if isinstance(terms, Exception) else terms, own])
    found = [json.loads(text) for text in gathered(post, mine)]
    everyones = [theirs for theirs, _ in found]
    if isinstance(terms, UserError):
        raise UsageError(terms.problem, terms.remedy) from terms
    if isinstance(terms, Exception):
        raise terms
    for rank, theirs in enumerate(everyones):
        if _REFUSED in theirs:
            problem, remedy = theirs[_REFUSED]
            raise UsageError(f"Rank {rank} could not {doing}: {problem}", remedy)
    for rank, theirs in enumerate(everyones):
        differing = [name for name in everyones[0] if theirs.get(name) != everyones[0][name]]
        if differing:
            name = differing[0]
            raise UsageError(
                f"The ranks asked for different pipelines: {name} is {_short(everyones[0][name])} on rank 0 and "
                f"{_short(theirs.get(name))} on rank {rank}.",
                "Give hvd.Pipeline the same model and arguments on all ranks.",
            )
    return [theirs for _, theirs in found]


def _problem_and_remedy(error: Exception) -> tuple[str, str]:
    if isinstance(error, UserError):
        return error.problem, error.remedy
    return f"{type(error).__name__}: {error}", "Put that right, on all ranks alike."


def gathered(post: Post, text: str) -> list[str]:
    """Return the text of each rank, in the order of ranks; waits for all."""
    said = text.encode()
    others = [rank for rank in range(post.communicator.size) if rank != post.communicator.rank]
    for other in others:
        send_text(post, other, Tag.TERMS, said)
    found = {post.communicator.rank: text}
    for other in others:
        found[other] = receive_text(post, other, Tag.TERMS).decode()
    post.finish()
    return [found[rank] for rank in range(post.communicator.size)]


def receive_text(post: Post, peer: int, tag: Tag) -> bytes:
    """Receive bytes that are preceded by their number."""
    memory = bytearray(_SIZE.size)
    post.wait([post.receive_bytes(peer, tag, memory)])
    text = bytearray(_SIZE.unpack(memory)[0])
    post.wait([post.receive_bytes(peer, tag, text)])
    return bytes(text)


def send_text(post: Post, peer: int, tag: Tag, text: bytes) -> None:
    """Send bytes, at least one, preceded by their number."""
    post.send_bytes(peer, tag, _SIZE.pack(len(text)))
    post.send_bytes(peer, tag, text)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 200 else f"{text[:200]}..."
