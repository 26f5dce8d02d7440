"""Link rates: text to bits per second, and the token bucket that enforces a rate."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.errors import UserError
from paceline.launch.quantities import parse_quantity

UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
LOWEST_BIT_S = 10**4
HIGHEST_BIT_S = 10**11

FRAME_BYTES = 1514
_LARGEST_BYTES = 72 * 1024  # a packet of TCP offload, 64 KiB, with the headers of its segments
_BURST_S = 0.002
_QUEUE_S = 0.05
_SMALLEST_QUEUE_BYTES = 128 * 1024
_REMEDY = f'Write a number and one of the units {", ".join(UNITS)}, for example "200mbit", or None for no limit.'


def parse_rate(text: str) -> int:
    """Return the bits per second of a text such as "1gbit" or "2.5mbit". Raises UserError with the text."""
    rate_bit_s = round(parse_quantity("rate", text, UNITS, _REMEDY))
    if not LOWEST_BIT_S <= rate_bit_s <= HIGHEST_BIT_S:
        raise UserError(f"The rate {text!r} cannot be used: it must lie between 10kbit and 100gbit.", _REMEDY)
    return rate_bit_s


@dataclass(frozen=True)
class TokenBucket:
    """Parameters of the kernel's tbf queue for one direction of a link."""

    rate_bit_s: int
    burst_bytes: int
    queue_bytes: int

    @classmethod
    def for_rate(cls, rate_bit_s: int, before: TokenBucket | None = None) -> TokenBucket:
        """Return a bucket of 2 ms of traffic (at least two frames) and a queue of 50 ms (at least 128 KiB).

        The bucket is the burst that may pass after silence. With a larger one, the rate would not slow small messages;
        with a smaller one, a timer that fires a millisecond late would lose throughput. Below 64 KiB the kernel splits
        the large packets of TCP offload itself, so the devices' offload settings need no change.

        A bucket that replaces `before` also holds every packet that waits in that one's queue. The kernel would wait
        for ever for the tokens of a packet that is larger than the bucket.
        """
        bytes_per_s = rate_bit_s / 8
        burst_bytes = max(2 * FRAME_BYTES, round(bytes_per_s * _BURST_S))
        if before is not None:
            burst_bytes = max(burst_bytes, min(before.burst_bytes, _LARGEST_BYTES))
        queue_bytes = max(_SMALLEST_QUEUE_BYTES, round(bytes_per_s * _QUEUE_S)) + burst_bytes
        return cls(rate_bit_s, burst_bytes, queue_bytes)
