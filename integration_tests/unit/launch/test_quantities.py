"""Sizes of messages as users write them."""

from __future__ import annotations

import pytest

from paceline.errors import UserError
from paceline.launch.quantities import size_bytes, size_name, sizes_bytes


def test_sizes_are_read() -> None:
    for text, bytes_ in {"4": 4, "4KiB": 4096, "1.5 MiB": 3 << 19, "64MB": 64_000_000}.items():
        assert size_bytes(text) == bytes_ and size_bytes(size_name(bytes_)) == bytes_
    assert sizes_bytes("4,4KiB,4096") == (4, 4096) and (size_name(4096), size_name(100)) == ("4KiB", "100")
    for text in ("6", "4furlong"):
        with pytest.raises(UserError, match=f"The size '{text}' cannot be used"):
            size_bytes(text)
