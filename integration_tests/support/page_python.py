"""Python on the documentation pages: statements, the frameworks they are for, and the names that they use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath
from typing import Any

from integration_tests.support import pages

FRAMEWORKS = ("torch", "tensorflow", "keras")
# In a comment at the end of a line: what the line is for.
_NAMED = re.compile(r"\b(PyTorch|TensorFlow|Keras)\b|(?<=\.)(torch|tensorflow|keras)\b")
# Words of a statement without such a comment, in blocks without an import.
_USES = (
    ("keras", re.compile(r"\bkeras\.|\bhvd\.callbacks\b|\bmodel\.(?:compile|fit)\(|\bhvd\.uneven\(dataset\)")),
    ("tensorflow", re.compile(r"\btf\.|\btape\b|\bGradientTape\b")),
)
_IMPORT = re.compile(r"^import paceline\.(\w+) as hvd\b", re.MULTILINE)


@dataclass(frozen=True)
class Statement:
    """A statement at the top level of a block."""

    block: pages.Block
    node: ast.stmt
    source: str
    frameworks: tuple[str, ...]


@cache
def statements(block: pages.Block) -> tuple[Statement, ...]:
    """Return the statements of a Python block. Raises SyntaxError that names the page."""
    try:
        tree = ast.parse(block.python)
    except SyntaxError as error:
        raise SyntaxError(f"{block.page}, block at line {block.line}: {error}") from None
    lines = block.python.splitlines()
    return tuple(
        Statement(block, node, source, _frameworks(block, source))
        for node in tree.body
        for source in ["\n".join(lines[node.lineno - 1 : node.end_lineno])]
    )


def _frameworks(block: pages.Block, source: str) -> tuple[str, ...]:
    comment = source.splitlines()[0].partition("  # ")[2]
    if imported := _IMPORT.search(block.python):
        return (imported[1],)
    if named := _NAMED.findall(comment):
        return tuple(dict.fromkeys((word or other).removeprefix("Py").lower() for word, other in named))
    used = [one for one, words in _USES if words.search(source)]
    of_page = [one for one in ("tensorflow", "keras") if one in PurePath(block.page).stem]
    return ((used or of_page or ["torch"])[0],)


@dataclass(frozen=True)
class Use:
    """A name below `hvd` and the arguments of its call; `count` is None where it is not called."""

    where: str
    name: str
    count: int | None
    keywords: tuple[str, ...]


def uses(where: str, tree: ast.AST) -> Iterator[Use]:
    """Yield the names of `hvd` in `tree`. An ellipsis and unpacked arguments stand for arguments left out."""
    called: set[ast.expr] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := _below_hvd(node.func)):
            called.add(node.func)
            given = [one for one in node.args if not isinstance(one, ast.Starred) and not is_ellipsis(one)]
            yield Use(where, name, len(given), tuple(one.arg for one in node.keywords if one.arg))
    inner = {node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node not in called | inner and (name := _below_hvd(node)):
            yield Use(where, name, None, ())


def _below_hvd(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return ".".join(parts) if isinstance(node, ast.Name) and node.id == "hvd" else ""


def is_ellipsis(node: ast.expr) -> bool:
    """Return True for `...`."""
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def uses_in_blocks(framework: str) -> list[Use]:
    """Return the uses in the statements of all pages that are for `framework`."""
    return [
        use
        for page in pages.pages()
        for block in pages.blocks(page)
        if block.python
        for statement in statements(block)
        if framework in statement.frameworks
        for use in uses(f"{page}, block at line {block.line}", statement.node)
    ]


def uses_inline() -> list[Use]:
    """Return the uses in inline code, which may be an expression or the beginning of one."""
    found: list[Use] = []
    for page in pages.pages():
        for line, code in pages.inline(page):
            if "hvd." not in code:
                continue
            where = f"{page}, line {line}"
            try:
                found += uses(where, ast.parse(code.strip()))
            except SyntaxError:
                found += [Use(where, name, None, ()) for name in re.findall(r"\bhvd\.(\w+(?:\.\w+)*)", code)]
    return found


class _WithoutEllipses(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        node.args = [one for one in node.args if not is_ellipsis(one)]
        return node


def program(block: pages.Block, framework: str) -> Any:
    """Compile the statements of a block that are for `framework`, without `...` among arguments; None without any."""
    body = [one.node for one in statements(block) if framework in one.frameworks]
    if not body:
        return None
    module = _WithoutEllipses().visit(ast.parse(block.python))
    lines = {node.lineno for node in body}
    module.body = [node for node in module.body if node.lineno in lines]
    return compile(ast.fix_missing_locations(module), f"{block.page}, block at line {block.line}", "exec")
