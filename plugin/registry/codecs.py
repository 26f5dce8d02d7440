"""The codecs that values may travel through; plugin/core/codecs has them."""

from __future__ import annotations

from typing import NamedTuple

from paceline.codecs.choice import EXACT


class Codec(NamedTuple):
    """`number`: in core (codec.h: CodecNames). `wire_share`: of a float32's four bytes, what travels. `error`: by how
    much a value may change when it is encoded, relative to itself, or to the largest of its slice (`of_largest`).
    `suggested`: for gradients, by plans.
    """

    number: int
    summary: str
    wire_share: float = 1.0
    error: float = 0.0
    of_largest: bool = False
    suggested: bool = True


# All but EXACT lose precision.
CODECS: dict[str, Codec] = {
    EXACT: Codec(0, "as they are"),
    "bf16": Codec(1, "the nearest bfloat16", 0.5, 2.0**-8),
    "q8": Codec(2, "8 bits and a scale for 256 values", (256 + 4) / (4 * 256), 1 / 127 / 2, of_largest=True),
    "q4": Codec(3, "4 bits and a scale for 256 values", (128 + 4) / (4 * 256), 1 / 7 / 2, True, False),
}
BFLOAT16 = "bf16"  # loses nothing of gradients of that type
