"""Template files, filled by Jinja. They only name values; whatever must be worked out is worked out in Python.

`@{name}` is a value and `@[ if name ]` a statement: shells, YAML and Dockerfiles have meanings of their own for Jinja's
usual `{{` and `{%`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

Values = Mapping[str, object]

SUFFIX = ".template"


def fill(folder: Path, name: str, values: Values) -> str:
    """The template `name` of `folder`, filled; lists become lines. Raises jinja2.UndefinedError: a defect of ours."""
    environment = Environment(
        variable_start_string="@{", variable_end_string="}", block_start_string="@[", block_end_string="]",
        comment_start_string="@#", comment_end_string="#@", trim_blocks=True, keep_trailing_newline=True,
        loader=FileSystemLoader(folder), undefined=StrictUndefined,
    )  # fmt: skip
    texts = {
        name: "\n".join(map(str, value)) if isinstance(value, (list, tuple)) else value
        for name, value in values.items()
    }
    return environment.get_template(name + SUFFIX).render(texts)
