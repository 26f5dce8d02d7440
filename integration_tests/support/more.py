"""Cases that `make test-more` runs, among those of `make test`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def more(*values: Any, id: str | None = None) -> Any:
    """As pytest.param, for a case of `make test-more`."""
    return pytest.param(*values, id=id, marks=pytest.mark.more)


def first_of(cases: Iterable[Any], *chosen: Any) -> list[Any]:
    """`cases`, of which `make test` runs those `chosen` and `make test-more` the others."""
    found = list(cases)
    assert set(chosen) <= set(found), f"{set(chosen) - set(found)} are not among the cases"
    return [case if case in chosen else more(case) for case in found]
