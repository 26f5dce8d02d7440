"""What tasks and rank 0's hub tell each other: JSON, one message per line."""

from __future__ import annotations

import msgspec

from paceline.launch.failures.verdict import Verdict
from paceline.launch.passing import Ended
from paceline.launch.rank.placement import Slot

LIMIT_BYTES = 1 << 20  # of one message; the longest carries a failed rank's last lines
PROTOCOL = "paceline rank 1"


class Challenge(msgspec.Struct, tag="challenge"):
    """The hub's first word, to whoever connects. `job` is a fingerprint."""

    nonce: str
    job: str
    protocol: str


class Hello(msgspec.Struct, tag="hello"):
    """A task's answer: that it knows the job, and who it is. `address`: its end of the connection."""

    proof: str
    nonce: str
    rank: int
    size: int
    host: str
    machine: str
    address: str
    local_rank: int | None = None


class Welcome(msgspec.Struct, tag="welcome"):
    """The hub knows the job, too."""

    proof: str


class Waiting(msgspec.Struct, tag="waiting"):
    """Not all are there."""

    missing: list[int]
    present: int
    seconds: float


class Start(msgspec.Struct, tag="start"):
    """All are there. `interface` is empty where the task's own end of the connection tells it."""

    slot: Slot
    port: int
    interface: str


class Refused(msgspec.Struct, tag="refused"):
    """The job cannot start, or this is not its hub (`foreign`)."""

    problem: str
    remedy: str
    foreign: bool = False


Message = Challenge | Hello | Welcome | Waiting | Start | Refused | Ended | Verdict

_DECODER = msgspec.json.Decoder(Message)


def encode(message: Message) -> bytes:
    """The message as a line."""
    return msgspec.json.encode(message) + b"\n"


def decode(line: bytes) -> Message:
    """The message in a line. Raises ValueError if there is none."""
    try:
        return _DECODER.decode(line)
    except msgspec.DecodeError as error:
        raise ValueError(f"{line[:60]!r} is not a message of a Paceline task: {error}") from None
