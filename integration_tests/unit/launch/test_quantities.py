"""Sizes of messages as users write them."""

from __future__ import annotations

import pytest

from paceline.errors import UserError
from paceline.launch.quantities import size_bytes, size_name, sizes_bytes


@pytest.mark.parametrize(("text", "bytes_"), [("4", 4), ("4KiB", 4096), ("1.5 MiB", 3 << 19), ("64MB", 64_000_000)])
def test_sizes_are_read(text: str, bytes_: int) -> None:
    assert size_bytes(text) == bytes_ and size_bytes(size_name(bytes_)) == bytes_


def test_sizes_named_twice_are_one() -> None:
    assert sizes_bytes("4,4KiB,4096") == (4, 4096) and (size_name(4096), size_name(100)) == ("4KiB", "100")


@pytest.mark.parametrize("text", ["6", "4furlong"])
def test_a_size_that_cannot_be_used_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=f"The size '{text}' cannot be used"):
        size_bytes(text)
