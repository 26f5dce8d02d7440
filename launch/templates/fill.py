"""Template files and how they are filled. They only name values; whatever must be worked out is worked out in Python.

| in a file | becomes |
| --- | --- |
| `@{name}` | the value |
| `@{name}` alone on its line | every line of the value, indented as it is; nothing where the value is empty |
| `@{?name}` at the beginning of a line | the rest of that line, left out where the value is empty |
| `@{<file}` alone on its line | the template `file` of the same folder, filled with the same values |

`@` was chosen because shells, YAML and Dockerfiles have their own meaning for `$` and `{{`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

Values = Mapping[str, object]

SUFFIX = ".template"
_NAMED = re.compile(r"@\{([a-z_]+)\}")
_ALONE = re.compile(r"( *)@\{(<?)([a-z_.-]+)\}")
_OPTIONAL = re.compile(r"@\{\?([a-z_]+)\}")


def fill(folder: Path, name: str, values: Values) -> str:
    """The template `name` of `folder`, filled. A name without a value is a KeyError: a defect of ours."""
    return "".join(line + "\n" for line in _lines(folder, name, values))


def _lines(folder: Path, name: str, values: Values) -> Iterator[str]:
    for line in (folder / (name + SUFFIX)).read_text(encoding="utf-8").splitlines():
        alone = _ALONE.fullmatch(line)
        if alone:
            indent, is_file, what = alone.groups()
            inner = _lines(folder, what, values) if is_file else iter(_text(values[what]).splitlines())
            yield from (indent + one if one else "" for one in inner)
            continue
        optional = _OPTIONAL.match(line)
        if optional:
            if not _text(values[optional[1]]):
                continue
            line = line[optional.end() :]
        yield _NAMED.sub(lambda found: _text(values[found[1]]), line)


def _text(value: object) -> str:
    """A value as text: 0 and None count as nothing, a list as lines."""
    if isinstance(value, (list, tuple)):
        return "\n".join(str(one) for one in value)
    return str(value) if value else ""
