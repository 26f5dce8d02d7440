"""What the framework adapters offer of merging: the argument `fusion` and `hvd.fusion_report()`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.fusion.control import choose
from paceline.fusion.report import FusionReport as FusionReport
from paceline.fusion.report import report
from paceline.native.library import loaded


def fuse(library: str, fusion: Any) -> str | None:
    """Ask Horovod for "torch" or "tensorflow" for the policy `fusion`, and return its name; None changes nothing."""
    return None if fusion is None else choose(loaded(library), fusion)


def reporter(library: str) -> Callable[..., FusionReport]:
    """`fusion_report` of the adapter of "torch" or "tensorflow"."""

    def fusion_report(process_set: Any = None) -> FusionReport:
        """What merging does at present among the ranks of `process_set` (default: all); see FusionReport."""
        return report(library, 0 if process_set is None else process_set.process_set_id)

    return fusion_report
