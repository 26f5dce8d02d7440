"""Interface of a program of another project to the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.examples.benchmarks.outside.settings import Settings

# Title of a table -> figures of one run; "time_ms" is among them.
Rows = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Run:
    """A run of a program from the folder `place` under one of its systems, with `input` of the settings."""

    place: Path
    system: str
    input: str
    settings: Settings


@dataclass(frozen=True)
class Program:
    """A program and its systems.

    Attributes:
        title: its name in tables.
        obtain: returns its folder, given the setting `folder`; raises UserError with the way to get it.
        systems: name -> environment of the ranks.
        references: systems over which ratios are formed.
        inputs: default of the setting.
        command: words after `python` on every rank.
        read: figures in the output of a run.
        at_once: one run takes all inputs, which then have equal turns.
    """

    title: str
    obtain: Callable[[str | None], Path]
    systems: Mapping[str, Mapping[str, str]]
    references: tuple[str, ...]
    inputs: tuple[str, ...]
    command: Callable[[Run], list[str]]
    read: Callable[[Run, str], Rows]
    at_once: bool = False
