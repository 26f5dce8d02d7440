"""One change to one file of Horovod's source, and its application.

An edit is anchored on one line of the verified source. The anchor is compared without surrounding white space and must
match exactly once inside its scope, otherwise the build stops: no Horovod is better than one with a misplaced hook.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.errors import UserError


@dataclass(frozen=True)
class Edit:
    """Insert `text` before or after the one line that equals `anchor`, or replace that line.

    `within`: search for the anchor from the one line that equals this, to the first later line that starts in column 0
    with `}` (C++) or with a letter or `@` (Python); None searches the whole file. `text` gets the anchor's indentation.
    """

    file: str
    anchor: str
    where: str  # "before", "after" or "replace"
    text: str
    within: str | None = None


def _scope(lines: list[str], edit: Edit) -> range:
    if edit.within is None:
        return range(len(lines))
    starts = [number for number, line in enumerate(lines) if line.strip() == edit.within]
    if len(starts) != 1:
        raise _mismatch(edit, edit.within, len(starts))
    for number in range(starts[0] + 1, len(lines)):
        first = lines[number][:1]
        ends = first == "}" if edit.file.endswith((".cc", ".h")) else first.isalpha() or first == "@"
        if ends:
            return range(starts[0], number)
    return range(starts[0], len(lines))


def _mismatch(edit: Edit, line: str, found: int) -> UserError:
    return UserError(
        f"Horovod's {edit.file} has the line {line!r} {found} times where exactly 1 was expected.",
        "This Paceline fits the published source of Horovod 0.28.1 only. Remove the archive from the cache "
        "(`paceline horovod clean`) and build again; if it happens again, report it with this message.",
    )


def apply(source: str, edit: Edit) -> str:
    """Return `source` with `edit` applied. Raises UserError unless the anchor matches exactly once."""
    lines = source.splitlines(keepends=True)
    matches = [number for number in _scope(lines, edit) if lines[number].strip() == edit.anchor]
    if len(matches) != 1:
        raise _mismatch(edit, edit.anchor, len(matches))
    (number,) = matches
    indent = lines[number][: len(lines[number]) - len(lines[number].lstrip())]
    new = [indent + line + "\n" if line else "\n" for line in edit.text.splitlines()]
    if edit.where == "before":
        lines[number:number] = new
    elif edit.where == "after":
        lines[number + 1 : number + 1] = new
    elif edit.where == "replace":
        lines[number : number + 1] = new
    else:
        raise ValueError(f"unknown place {edit.where!r}")
    return "".join(lines)
