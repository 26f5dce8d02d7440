"""The advice as one HTML file with embedded pictures."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from paceline.errors import UserError
from paceline.launch.advise.curves import Curve, figure
from paceline.launch.advise.ranking import Advice
from paceline.launch.advise.texts import measured_text
from paceline.launch.record.plot import step_figure
from paceline.predict.advice import StepModel
from paceline.record.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FOLDER = Path(__file__).parent
_TEMPLATE = "report.html.template"


def html(advice: Advice, model: StepModel, recorded: Trace, lines: Sequence[str], found: Sequence[Curve]) -> str:
    """Return the report; `lines`: the recommendation in sentences, `found`: the curves of its picture."""
    environment = Environment(loader=FileSystemLoader(_FOLDER), undefined=StrictUndefined, autoescape=True)
    iteration = model.recorded.iteration
    return environment.get_template(_TEMPLATE).render(
        advice=advice,
        best=advice.best,
        lines=lines,
        measured_text=measured_text,
        ranks=model.measured.ranks,
        steps=model.measured.steps,
        gradients=len(model.measured.gradients),
        megabytes=sum(one.bytes for one in model.measured.gradients) / 1e6,
        step_ms=1e3 * model.step_s,
        compute_ms=1e3 * iteration.compute_s,
        exposed_ms=1e3 * max(0.0, model.step_s - iteration.compute_s),
        late_ms=1e3 * model.late_s,
        timeline=_svg(step_figure(recorded)),
        curves=_svg(figure(found)) if found else "",
    )


def write(path: Path, text: str) -> None:
    """Write a file. Raises UserError if that fails."""
    try:
        path.write_text(text)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror}.", "Name a file in a folder you may write to."
        ) from None


def _svg(drawn: Figure) -> str:
    """Return the picture as an HTML element without external resources."""
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "paceline"}):
        buffer = io.StringIO()
        drawn.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
