"""Rows of the table, and the recommended one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from paceline.launch.advise.effects import Effect, code, effect, options, shown
from paceline.launch.intervals import Interval
from paceline.predict.remedies import LEAST_GAIN, LEAST_MERGING_GAIN, Remedy
from paceline.registry.policies import OPTIMAL

HOROVODS = "Horovod's own"
# Policies that only `paceline plan` compares.
_OTHER_POLICIES = frozenset({"none", "single", "mgwfbp"})
# By exchange, the options that must save this share of the step without them to get a row.
LEAST_SEEN = 0.05
_SPECIAL: Mapping[str | None, tuple[str, ...]] = {"majority": ("exchange",), "pipelined": ("codec",), None: ("codec",)}
# Predictions are trusted to this share of a step, even if the recorded step was predicted better.
LEAST_ERROR = 0.05
MOST_ERROR = 0.20
VERIFIED = 3


@dataclass(frozen=True)
class Row:
    """A setting and its predicted step `step_s` in seconds.

    `measured`: its step relative to stock Horovod's. `measured_s`: its step in seconds. `failed`: why it could not be
    measured.
    """

    options: Mapping[str, str]
    step_s: float
    priced: bool
    measured: Interval | None = None
    measured_s: float | None = None
    failed: str = ""

    @property
    def name(self) -> str:
        """Variables in front of the command."""
        return shown(self.options) or HOROVODS

    @property
    def code(self) -> str:
        """Equivalent line of a script."""
        return code(self.options)

    @property
    def effect(self) -> Effect:
        """Costs of the setting besides time."""
        return effect(self.options)


def rows(found: Sequence[Remedy]) -> list[Row]:
    """Rows of all sensible settings: Horovod's own first, then the fastest first.

    Excluded are fewer ranks, all policies of merging but `optimal`, codecs if the wire is not the bottleneck, and
    partial rounds if no rank is late.
    """
    stock, *others = found
    steps = {tuple(sorted(options(one.flags).items())): one.step_s for one in found if one.ranks == stock.ranks}
    made = [Row({}, stock.step_s, False)]
    for one in others:
        given = options(one.flags)
        if one.ranks != stock.ranks or not given or is_another_policy(given):
            continue
        simpler = {name: value for name, value in given.items() if name not in _SPECIAL.get(given.get("exchange"), ())}
        base_s = steps.get(tuple(sorted(simpler.items())), stock.step_s)
        if simpler == given or one.step_s < base_s * (1 - LEAST_SEEN):
            made.append(Row(given, one.step_s, bool(one.price)))
    return made


def is_another_policy(given: Mapping[str, str]) -> bool:
    """Return True if the options only change merging, to another policy than `optimal`."""
    return "exchange" not in given and "codec" not in given and given.get("fusion") in _OTHER_POLICIES


def to_verify(found: Sequence[Row], stock_s: float, count: int = VERIFIED) -> list[Row]:
    """Return the fastest rows with one variable, unless predicted to be slower than the recorded `stock_s`."""
    return [one for one in found[1:] if len(one.options) == 1 and one.step_s <= stock_s][:count]


@dataclass(frozen=True)
class Advice:
    """The rows, `stock_s` as recorded, the relative `error` of its prediction, and notes.

    `verified`: settings were measured in turn with stock Horovod.
    """

    rows: Sequence[Row]
    stock_s: float
    error: float
    verified: bool = False
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def margin(self) -> float:
        """Gain that a prediction must exceed."""
        return max(abs(self.error), LEAST_ERROR)

    def ratio(self, row: Row) -> float:
        """Step of the row over stock Horovod's: measured, or else predicted."""
        return row.measured.median if row.measured is not None else row.step_s / self.stock_s

    @property
    def best(self) -> Row:
        """Recommended row; the first one is Horovod's own."""
        free = self.best_free
        priced = min((one for one in self.rows[1:] if one.priced and self._sure(one)), key=self._rank, default=None)
        free_ratio = 1.0 if free is self.rows[0] else self.ratio(free)
        return free if priced is None or self.ratio(priced) > free_ratio * (1 - LEAST_GAIN) else priced

    @property
    def best_free(self) -> Row:
        """Best row that does not change results."""
        free = (one for one in self.rows[1:] if not one.priced and self._sure(one))
        return min(free, key=self._rank, default=self.rows[0])

    def _rank(self, row: Row) -> tuple[float, int, bool]:
        """Sort key: speed; among equally fast settings the one with the fewest variables."""
        return round(self.ratio(row) / LEAST_MERGING_GAIN), len(row.options), row.options.get("fusion") != OPTIMAL

    def _sure(self, row: Row) -> bool:
        if self.verified:
            return row.measured is not None and row.measured.high < 1
        if abs(self.error) > MOST_ERROR:
            return False
        return self.ratio(row) < 1 - self.margin


def with_measured(advice: Advice, measured: Mapping[str, Row]) -> Advice:
    """Return the advice with rows replaced by measured ones of the same name, measured and fast ones first."""
    stock, *others = [measured.get(one.name, one) for one in advice.rows]
    known = sorted((one for one in others if one.measured is not None), key=advice.ratio)
    return replace(advice, rows=[stock, *known, *(one for one in others if one.measured is None)], verified=True)
