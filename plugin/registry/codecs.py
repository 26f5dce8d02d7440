"""Registry of codecs; plugin/core/codecs implements them."""

from __future__ import annotations

from typing import NamedTuple

from paceline.codecs.choice import EXACT


class Codec(NamedTuple):
    """A codec.

    Attributes:
        number: its number in core (codec.h: CodecNames).
        summary: a few words for tables.
        wire_share: bytes on the wire per float32, divided by 4.
        error: bound of the relative change of a value by encoding.
        of_largest: `error` is relative to the largest value of the slice, not to the value itself.
        suggested: plans may recommend it for gradients.
    """

    number: int
    summary: str
    wire_share: float = 1.0
    error: float = 0.0
    of_largest: bool = False
    suggested: bool = True


# All except EXACT are lossy.
CODECS: dict[str, Codec] = {
    EXACT: Codec(0, "unchanged"),
    "bf16": Codec(1, "the nearest bfloat16", 0.5, 2.0**-8),
    "q8": Codec(2, "8 bits and a scale for 256 values", (256 + 4) / (4 * 256), 1 / 127 / 2, of_largest=True),
    "q4": Codec(3, "4 bits and a scale for 256 values", (128 + 4) / (4 * 256), 1 / 7 / 2, True, False),
}
BFLOAT16 = "bf16"  # lossless for bfloat16 gradients
