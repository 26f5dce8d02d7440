"""`paceline template ray` and `spark`: scripts whose ranks are started by an engine instead of a launcher."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import click

from paceline.launch import console
from paceline.launch.templates.output import write

# File and summary of each script; it is also an example, so that tests run it.
ENGINES = {
    "ray": ("digits_ray.py", "a PyTorch script whose ranks are workers of Ray"),
    "spark": ("digits_spark.py", "a Keras script whose ranks are tasks of Spark"),
}


def script(engine: str) -> str:
    """Return the text of an engine's script."""
    return resources.files("paceline.examples").joinpath(ENGINES[engine][0]).read_text()


def command(engine: str) -> click.Command:
    """Return the subcommand that writes this engine's script."""
    file, summary = ENGINES[engine]

    def callback(output: Path | None, force: bool) -> None:
        if output is None:
            click.echo(script(engine), nl=False)
            return
        write(output, script(engine), force)
        console.note(f"Wrote {output}.")

    return click.Command(
        engine,
        callback=callback,
        params=[
            click.Option(["-o", "--output"], type=click.Path(path_type=Path), help="File to write."),
            click.Option(["--force"], is_flag=True, help="Overwrite the file if there is one."),
        ],
        help=f"Write {summary}.\n\nFor example: `paceline template {engine} -o {file}`, then `python {file}"
        " --workers 2`. Without -o the script is printed. PACELINE_* variables of the driver reach the ranks.",
        short_help=f"Write {summary}.",
    )
