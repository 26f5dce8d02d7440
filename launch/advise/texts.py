"""The advice in sentences, and as a table for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.launch.advise.ranking import MOST_ERROR, Advice, Row

if TYPE_CHECKING:
    from rich.table import Table

# Largest relative change of stock Horovod's step between the recorded run and the measured ones.
MOST_DRIFT = 0.15


def table(advice: Advice, title: str) -> Table:
    """Return a table with a row per setting: stock Horovod first, then the fastest first."""
    from rich.table import Table

    made = Table(title=title, title_justify="left")
    made.add_column("in front of the command", no_wrap=True)
    made.add_column("predicted", justify="right", no_wrap=True)
    made.add_column("of stock", justify="right", no_wrap=True)
    if advice.verified:
        made.add_column("of stock, measured", justify="right", no_wrap=True)
    made.add_column("wire", justify="right", no_wrap=True)
    for column in ("staleness", "memory", "accuracy lost"):
        made.add_column(column, overflow="fold")
    best = advice.best
    for row in advice.rows:
        effect = row.effect
        measured = [measured_text(row)] if advice.verified else []
        made.add_row(
            row.name.replace(" PACELINE", "\nPACELINE"),
            f"{1e3 * row.step_s:.1f} ms",
            f"{row.step_s / advice.stock_s:.2f}",
            *measured,
            f"{effect.wire:.2g}",
            effect.staleness,
            effect.memory,
            effect.accuracy,
            style="bold" if row is best else None,
        )
    return made


def measured_text(row: Row) -> str:
    """Measured ratio with its interval, or why there is none."""
    if row.measured is None:
        return "failed" if row.failed else "-"
    return f"{row.measured.median:.2f} [{row.measured.low:.2f}, {row.measured.high:.2f}]"


def sentences(advice: Advice, launcher: str) -> list[str]:
    """The recommendation and its basis. `launcher`: the command that variables are put in front of."""
    step = f"Stock Horovod's step took {1e3 * advice.stock_s:.1f} ms"
    predicted_ms = 1e3 * advice.rows[0].step_s
    found = [f"{step} in the recorded run; the model predicts {predicted_ms:.1f} ms ({advice.error:+.1%})."]
    measured_s = advice.rows[0].measured_s
    if measured_s is not None and abs(measured_s / advice.stock_s - 1) > MOST_DRIFT:
        found.append(
            f"It took {1e3 * measured_s:.1f} ms in the measured runs: something else used the machines or the network. "
            "Predicted ratios are less certain than measured ones."
        )
    found += [f"{row.name} did not run: {row.failed}" for row in advice.rows if row.failed]
    return [*found, *_recommended(advice, launcher), *advice.notes]


def _recommended(advice: Advice, launcher: str) -> list[str]:
    best = advice.best
    if best is not advice.rows[0]:
        how = "measured" if best.measured is not None else "predicted"
        gain = f"{advice.ratio(best):.2f} of stock Horovod's step, {how}"
        lines = [f"Recommended: {best.name} {launcher}", f"In the script: {best.code}", f"Expected: {gain}."]
        if best.effect.page:
            lines[-1] += f" Read docs/{best.effect.page.replace(', ', ', docs/')} first."
        free = advice.best_free
        if best.priced and free is not advice.rows[0]:
            lines.append(f"With results as they are: {free.name}, {advice.ratio(free):.2f} of stock Horovod's step.")
        if best.measured is None:
            lines.append("Add --verify to measure it.")
        return lines
    if advice.verified:
        return ["Recommended: stock Horovod. No setting was measured to be faster."]
    if abs(advice.error) > MOST_ERROR:
        return [f"Nothing is recommended: the model is off by more than {MOST_ERROR:.0%}. Add --verify to measure."]
    return [
        f"Recommended: stock Horovod. No setting is predicted to gain more than {advice.margin:.0%}, the model's error."
    ]
