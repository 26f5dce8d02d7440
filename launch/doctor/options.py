"""`paceline doctor --options`: all options, their values, and the origin of each value."""

from __future__ import annotations

from rich.table import Table

from paceline import config
from paceline.launch import console

MEANING_COLUMNS = 40  # narrower, a list is easier to read


def show() -> None:
    """Print all options."""
    settings = config.read()
    table = Table(title="Options of Paceline", title_justify="left", show_lines=True)
    table.add_column("option", no_wrap=True)  # a name must stay one word, so that it can be found and copied
    table.add_column("value (from)", overflow="fold")
    table.add_column("meaning", min_width=MEANING_COLUMNS)
    for option in config.OPTIONS:
        value = config.as_text(getattr(settings, option.name))
        unit = f" {option.unit}" if option.unit else ""
        origin = "default" if settings.origin(option.name) == config.DEFAULT else "variable"
        table.add_row("\n".join((option.variable, *option.flags)), f"{value}{unit} ({origin})", option.meaning)
    console.out().print(table)
    console.out().print(
        "The variables work with horovodrun and, where Horovod was built with it, MPI; the flags belong to `paceline "
        "run` and `paceline horovod` and override the variables.",
        soft_wrap=True,
    )
