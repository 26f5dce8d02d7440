"""Template files, filled by Jinja. They only name values; computation is done in Python.

`@{name}` is a value and `@[ if name ]` a statement, because Jinja's usual `{{` and `{%` have meanings in shells, YAML
and Dockerfiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

Values = Mapping[str, object]

SUFFIX = ".template"


def fill(folder: Path, name: str, values: Values) -> str:
    """Fill the template `name` of `folder`; lists become lines. Raises jinja2.UndefinedError for a missing value."""
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
