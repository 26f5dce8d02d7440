"""Merging in the framework adapters: the argument `fusion` and `hvd.fusion_report()`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.fusion.control import choose
from paceline.fusion.report import FusionReport as FusionReport
from paceline.fusion.report import report
from paceline.native.library import loaded


def fuse(library: str, fusion: Any) -> str | None:
    """Select the policy `fusion` in Horovod's library for "torch" or "tensorflow"; return its name, None for None."""
    return None if fusion is None else choose(loaded(library), fusion)


def reporter(library: str) -> Callable[..., FusionReport]:
    """Return `fusion_report` of the adapter of "torch" or "tensorflow"."""

    def fusion_report(process_set: Any = None) -> FusionReport:
        """Return the current state of merging among the ranks of `process_set` (default: all) as a FusionReport."""
        return report(library, 0 if process_set is None else process_set.process_set_id)

    return fusion_report
