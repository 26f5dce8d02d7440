"""The documentation: names of the API, error messages and llms.txt are complete."""

from __future__ import annotations

import ast
import re

import pytest

from integration_tests.support import messages_page
from integration_tests.support.packages import ROOT
from paceline.registry import exchanges

# Pages name these in sentences, because Horovod has their documentation, or because a section has their members.
IN_PROSE = {
    *(f"{kind}allreduce{form}" for kind in ("", "grouped_") for form in ("", "_", "_async", "_async_")),
    "callbacks",
    "elastic",
}


def _ours(framework: str) -> set[str]:
    """The strings in `_OURS`, and the settings of exchanges that it unpacks."""
    tree = ast.parse((ROOT / "frameworks" / framework / "__init__.py").read_text())
    (listed,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_OURS" and isinstance(node.value, ast.List)
    )
    names = {element.value for element in listed.elts if isinstance(element, ast.Constant)}
    return {*map(str, names), *exchanges.SETTINGS}


@pytest.mark.parametrize("framework", ["torch", "keras", "tensorflow"])
def test_every_public_name_is_on_the_page_of_its_framework(framework: str) -> None:
    page = (ROOT / "docs" / "reference" / f"api_{framework}.md").read_text()
    documented = {name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)$", page, re.MULTILINE)}
    assert _ours(framework) - documented - IN_PROSE == set()


def test_page_of_messages_is_that_of_the_sources() -> None:
    page = (ROOT / "docs" / "reference" / "messages.md").read_text()
    command = "python -m integration_tests.support.messages_page > docs/reference/messages.md"
    assert page == messages_page.messages_page(), command


def test_llms_txt_has_a_line_for_every_page() -> None:
    docs = ROOT / "docs"
    listed = re.findall(r"^- \[[^]]+\]\((\S+)\): \S", (docs / "llms.txt").read_text(), re.MULTILINE)
    paths = [*docs.rglob("*.md"), *docs.rglob("*.ipynb")]
    pages = {str(path.relative_to(docs)) for path in paths} - {"README.md"}
    assert sorted(listed) == sorted(pages)


def test_every_picture_that_is_drawn_is_on_a_page() -> None:
    docs = ROOT / "docs"
    text = "".join(path.read_text() for path in docs.rglob("*.md"))
    assert [path.name for path in docs.rglob("*.svg") if f"pictures/{path.name}" not in text] == []
