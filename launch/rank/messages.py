"""Messages between tasks and rank 0's hub: JSON, one message per line."""

from __future__ import annotations

import msgspec

from paceline.launch.failures.verdict import Verdict
from paceline.launch.passing import Ended
from paceline.launch.rank.placement import Slot

LIMIT_BYTES = 1 << 20  # of one message; the longest contains a failed rank's last lines
PROTOCOL = "paceline rank 2"


class Challenge(msgspec.Struct, tag="challenge"):
    """First message of the hub to each connection. `job` is a fingerprint."""

    nonce: str
    job: str
    protocol: str


class Hello(msgspec.Struct, tag="hello"):
    """Answer of a task: proof that it knows the job, and its identity. `address`: its end of the connection."""

    proof: str
    nonce: str
    rank: int
    size: int
    host: str
    machine: str
    address: str
    local_rank: int | None = None


class Welcome(msgspec.Struct, tag="welcome"):
    """Answer of the hub: proof that it knows the job."""

    proof: str


class Waiting(msgspec.Struct, tag="waiting"):
    """Notice that ranks are missing."""

    missing: list[int]
    present: int
    seconds: float


class Start(msgspec.Struct, tag="start"):
    """All ranks are connected. `interface` is empty if the task's end of the connection determines it.

    `address` and `port`: those of Horovod's rendezvous server; `address` is empty if it is the hub's.
    """

    slot: Slot
    port: int
    interface: str
    address: str


class Refused(msgspec.Struct, tag="refused"):
    """The job cannot start, or only this task is refused (`foreign`), because its proof is wrong (`unproven`)."""

    problem: str
    remedy: str
    foreign: bool = False
    unproven: bool = False


Message = Challenge | Hello | Welcome | Waiting | Start | Refused | Ended | Verdict

_DECODER = msgspec.json.Decoder(Message)


def encode(message: Message) -> bytes:
    """Encode a message as a line."""
    return msgspec.json.encode(message) + b"\n"


def decode(line: bytes) -> Message:
    """Decode a line. Raises ValueError if it holds no message."""
    try:
        return _DECODER.decode(line)
    except msgspec.DecodeError as error:
        raise ValueError(f"{line[:60]!r} is not a message of a Paceline task: {error}") from None
