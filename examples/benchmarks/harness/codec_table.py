"""What `python -m examples.benchmarks codecs` found, for the eye."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paceline.examples.benchmarks.harness.cells import begun

if TYPE_CHECKING:
    from rich.table import Table


def as_table(result: dict[str, Any]) -> Table:
    """A row for each coding of what `codec_training.compare` answers."""
    title = (
        f"{result['model']}: {result['ranks']} ranks, {result['seeds']} seeds, {result['steps']} steps,"
        f" collective {result['collective']}"
    )
    columns = ("held-out loss", "from none (sd)", "same seed", "training loss", "from none (sd)", "accuracy")
    table = begun(title, "codec", columns)
    for coding, values in result["codings"].items():
        loss, training, accuracy = values["loss"], values["training_loss"], values["accuracy"]
        table.add_row(
            coding.replace("_plain", ", no feedback"),
            _with_sd(loss),
            _apart(loss),
            _paired(loss),
            _with_sd(training),
            _apart(training),
            f"{accuracy['mean']:.2%}",
        )
    return table


def _with_sd(figure: dict[str, Any]) -> str:
    return f"{figure['mean']:.5f} ± {figure['sd']:.5f}"


def _apart(figure: dict[str, Any]) -> str:
    return "" if figure["from_none_sd"] is None else f"{figure['from_none_sd']:+.2f}"


def _paired(figure: dict[str, Any]) -> str:
    paired = figure["paired"]
    return "" if paired is None else f"{paired['mean']:+.5f} ± {paired['sd']:.5f}"
