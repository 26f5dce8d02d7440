"""Code of the documentation pages: blocks and inline code, sorted into shell and Python."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from integration_tests.support.packages import ROOT

_FENCE = re.compile(r"^ *```(\w*)$")
_INLINE = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
# A line that only Python has: an import, the head of a compound statement, a call of an attribute, alone or assigned.
_PYTHON_LINE = re.compile(
    r"from \S+ import |import \S|@\w|def \w+\(|class \w.*:$|for .* in .*:$|[\w.]+(?:(?:, \w+)* = \w[\w.]*)?\.\w+\("
)
_ASSIGNMENT = re.compile(r"(?:PACELINE|HOROVOD)_[A-Z0-9_]+=\S")
_ENDS = re.compile(r"[;&|<>()\n]+")
# Programs whose command lines are checked, and those that start them.
OURS = ("paceline", "horovodrun", "make", "python", "python3", ".venv/bin/python")
STARTERS = ("sudo", "env", "exec", "srun", "mpirun", "jsrun", "torchrun", "unshare", "export")
_PROGRAM = re.compile(rf"^(?:{'|'.join(map(re.escape, (*OURS, *STARTERS)))})(?= |$)")


@dataclass(frozen=True)
class Block:
    """A block of code: its page, its first line's number, its language ("" if indented or not named), its text."""

    page: str
    line: int
    language: str
    text: str

    @property
    def python(self) -> str:
        """The text of a Python block; of an indented block, without its commands. Empty if it is not Python."""
        if self.language:
            return self.text if self.language == "python" else ""
        commands = {
            number + at
            for number, line in _logical_lines(self)
            if _begins_command(line)
            for at in range(line.count("\n") + 1)
        }
        rest = [line for number, line in enumerate(self.text.splitlines(), self.line) if number not in commands]
        return "\n".join(rest).strip("\n") + "\n" if any(map(_PYTHON_LINE.match, rest)) else ""

    @property
    def is_shell(self) -> bool:
        """True if a line begins with a program, or with a variable in front of one."""
        if self.language:
            return self.language in ("sh", "bash", "console", "dockerfile")
        return any(_begins_command(line) for line in self.text.splitlines())


def _begins_command(line: str) -> bool:
    line = line.strip().removeprefix("$ ").removeprefix("RUN ")
    return bool(_PROGRAM.match(line) or _ASSIGNMENT.match(line))


def pages() -> list[str]:
    """Paths of README.md, of the pages in docs/ and of examples/README.md."""
    found = [path.relative_to(ROOT) for path in sorted((ROOT / "docs").rglob("*.md"))]
    return ["README.md", *map(str, found), "examples/README.md"]


@cache
def text(page: str) -> str:
    """Return the text of a page without the part about names that are refused."""
    return Path(ROOT / page).read_text().partition("\n## Names of version 0.1\n")[0]


@cache
def blocks(page: str) -> tuple[Block, ...]:
    """Return fenced and indented blocks in order."""
    lines = text(page).splitlines()
    found: list[Block] = []
    code: list[str] = []
    language: str | None = None  # of the fence that is open
    begin, before = 0, ""

    def close() -> None:
        if any(line.strip() for line in code):
            found.append(Block(page, begin, language or "", _dedented(code)))
        code.clear()

    for number, line in enumerate(lines, 1):
        fence = _FENCE.match(line)
        if language is not None:
            if fence and not fence[1]:
                close()
                language = None
            else:
                code.append(line)
        elif fence:
            close()
            language, begin = fence[1], number + 1
        elif line.startswith("    ") and (code or not before.strip()):
            begin = begin if code else number
            code.append(line)
        elif code and not line.strip():
            code.append(line)
        else:
            close()
        before = line
    close()
    return tuple(found)


def _dedented(lines: list[str]) -> str:
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[indent:] for line in lines).strip("\n") + "\n"


def inline(page: str) -> Iterator[tuple[int, str]]:
    """Yield inline code and its line outside blocks."""
    whole, prose = text(page).splitlines(), []
    inside = {block.line + at for block in blocks(page) for at in range(block.text.count("\n") + 1)}
    prose = ["" if number in inside or _FENCE.match(line) else line for number, line in enumerate(whole, 1)]
    joined = "\n".join(prose)
    for match in _INLINE.finditer(joined):
        yield joined.count("\n", 0, match.start()) + 1, match[1].replace("\n", " ")


@dataclass(frozen=True)
class Command:
    """A simple command of a page; `complete` is False in inline code, which may leave out what a sentence does."""

    page: str
    line: int
    words: tuple[str, ...]
    complete: bool


def commands(page: str) -> Iterator[Command]:
    """Yield every simple command of a page that begins with a known program or with a variable."""
    for block in blocks(page):
        if block.is_shell:
            for number, line in _logical_lines(block):
                for words in simple_commands(line):
                    yield Command(page, number, words, True)
    for number, code in inline(page):
        if _begins_command(code):
            for words in simple_commands(code):
                yield Command(page, number, words, False)


def _logical_lines(block: Block) -> Iterator[tuple[int, str]]:
    """Yield commands with the number of their first line; continued lines are joined by newlines."""
    begun, parts = block.line, list[str]()
    for number, line in enumerate(block.text.splitlines(), block.line):
        begun = begun if parts else number
        parts.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            yield begun, "\n".join(parts)
            parts = []


def simple_commands(line: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command of a line that begins with a known program or with a variable."""
    lexer = shlex.shlex(
        line.replace("\n", " ").strip().removeprefix("$ ").removeprefix("RUN "), posix=True, punctuation_chars=";&|<>"
    )
    lexer.whitespace_split, lexer.commenters = True, "#"
    try:
        words = list(lexer)
    except ValueError:  # a quotation over several lines: text of a script
        return
    part: list[str] = []
    for word in [*words, ";"]:
        if not _ENDS.fullmatch(word):
            part.append(word)
        elif part:
            if _begins_command(" ".join(part)):
                yield tuple(part)
            part = []
