"""Network latencies: text to nanoseconds."""

from __future__ import annotations

from paceline.errors import UserError
from paceline.launch.quantities import parse_quantity

UNITS = {"us": 10**3, "ms": 10**6, "s": 10**9}
# Below it, the machine's own processing time of a frame would be a large part.
LOWEST_NS = 10**5
HIGHEST_NS = 10**9

_REMEDY = f'Write a number and one of the units {", ".join(UNITS)}, for example "2ms", or None for no latency.'


def parse_latency(text: str) -> int:
    """Return the nanoseconds of a text such as "2ms" or "500us"; 0 disables it. Raises UserError with the text."""
    latency_ns = round(parse_quantity("latency", text, UNITS, _REMEDY))
    if latency_ns != 0 and not LOWEST_NS <= latency_ns <= HIGHEST_NS:
        raise UserError(f"The latency {text!r} cannot be used: it must be 0 or lie between 100us and 1s.", _REMEDY)
    return latency_ns
