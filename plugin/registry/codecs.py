"""The codecs that values may travel through; plugin/core/codecs has them."""

from __future__ import annotations

from paceline.codecs.choice import EXACT

# Name -> its number in core (codec.h: CodecNames), and what it does. All but EXACT lose precision.
CODECS: dict[str, tuple[int, str]] = {
    EXACT: (0, "as they are"),
    "bf16": (1, "the nearest bfloat16"),
    "trunc16": (2, "the upper half of a float32"),
    "q8": (3, "8 bits and a scale for 256 values"),
}
BFLOAT16 = "bf16"  # loses nothing of gradients of that type
