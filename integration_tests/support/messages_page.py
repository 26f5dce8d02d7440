"""docs/reference/messages.md: the page that is generated from the errors in the sources.

python -m integration_tests.support.messages_page > docs/reference/messages.md

It has every error that a user can fix, from the calls of our error classes. A problem or a remedy that is computed
elsewhere is shown as far as the call contains it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from integration_tests.support.packages import ROOT

CLASSES = ("UserError", "UsageError", "ranks_lost")
NOTES = 'Notes, in lines that begin with "Paceline:"'
IN_CPP = "Errors and warnings of operations, from Horovod's background thread"
# Where a text of C++ begins, also one that is raised or logged later; it ends with the statement.
RAISED = re.compile(
    r"\b(?:InvalidArgument|Aborted|runtime_error|logic_error|LostRank|auto text =)|\bLOG\((?:WARNING|ERROR)"
)
STATEMENT = re.compile(r'(?:[^;"]|"(?:[^"\\]|\\.)*")*')
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
# Beginning of a path -> subject; the longest that fits. Subjects are in the order of the page.
SUBJECTS = (
    ("plugin/horovod/", "Building and installing Horovod"),
    ("launch/horovod.py", "Building and installing Horovod"),
    ("launch/rank/", "Starting ranks with paceline rank"),
    ("launch/templates/", "Job files: paceline template"),
    ("launch/plan/", "Traces and plans"),
    ("launch/record/", "Traces and plans"),
    ("plugin/record/", "Traces and plans"),
    ("plugin/predict/", "Traces and plans"),
    ("launch/probe/", "Collectives, codecs and networks"),
    ("launch/", "Commands and options"),
    ("plugin/config.py", "Commands and options"),
    ("plugin/option.py", "Commands and options"),
    ("plugin/renamed.py", "Commands and options"),
    ("plugin/variables.py", "Commands and options"),
    ("plugin/launchers.py", "Commands and options"),
    ("plugin/lifecycle.py", "Start and end of the ranks"),
    ("plugin/uncaught.py", "Start and end of the ranks"),
    ("plugin/leaving/", "Start and end of the ranks"),
    ("plugin/native/", "Start and end of the ranks"),
    ("plugin/fusion/", "Merging by plan"),
    ("plugin/collectives/", "Collectives, codecs and networks"),
    ("plugin/codecs/", "Collectives, codecs and networks"),
    ("plugin/partial/", "Partial exchange"),
    ("plugin/local/", "Local exchange"),
    ("plugin/split/", "Split exchange"),
    ("frameworks/torch/split/", "Split exchange"),
    ("frameworks/keras3/sharded.py", "Split exchange"),
    ("plugin/pipeline_options.py", "Pipeline stages"),
    ("plugin/stages/", "Pipeline stages"),
    ("frameworks/torch/stages/", "Pipeline stages"),
    ("frameworks/keras/stages/", "Pipeline stages"),
    ("frameworks/torch/", "PyTorch"),
    ("plugin/horovod/shims/host_staging.py", "PyTorch"),
    ("frameworks/tensorflow/", "TensorFlow"),
    ("frameworks/keras3/", "Keras and TensorFlow"),
    ("frameworks/keras/", "Keras and TensorFlow"),
    ("plugin/", "Arguments of optimizers and tapes, exchanges"),
)
HEAD = """# Error messages

Every error of Paceline that you can put right has two lines: the problem, then the remedy. This page has all of them,
by subject; search for the first words. "…" stands for a name or a number.
[Troubleshooting](../troubleshooting.md) lists other symptoms, and the messages of ranks that fail while they wait for
each other.

`python -m integration_tests.support.messages_page` prints this page, and a test compares them.
"""


class Message(NamedTuple):
    """One error as users see it."""

    subject: str
    problem: str
    remedy: str


def _constants(tree: ast.Module) -> dict[str, str]:
    """Texts that the module gives names."""
    return {
        node.targets[0].id: text
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and (text := _text(node.value, {})) is not None
    }


def _text(node: ast.expr, constants: dict[str, str]) -> str | None:
    """Return the text of an expression, with "…" for its unknown parts; None without text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, constants) or "…" for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return _text(node.value, constants)
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [_text(side, constants) for side in (node.left, node.right)]
        return None if sides == [None, None] else "".join(side or "…" for side in sides)
    if isinstance(node, ast.IfExp):
        return " / ".join(filter(None, (_text(side, constants) for side in (node.body, node.orelse)))) or None
    return None


def _messages(path: Path) -> Iterator[Message]:
    name = str(path.relative_to(ROOT))
    _, subject = max((one for one in SUBJECTS if name.startswith(one[0])), key=lambda one: len(one[0]))
    tree = ast.parse(path.read_text())
    constants = _constants(tree)
    for node in ast.walk(tree):
        called = getattr(node.func, "id", None) if isinstance(node, ast.Call) else None
        if called == "log" and isinstance(node, ast.Call) and (note := _text(node.args[0], constants)):
            yield Message(NOTES, note, "")
        if called in CLASSES and isinstance(node, ast.Call) and len(node.args) == 2:
            problem, remedy = (_text(argument, constants) for argument in node.args)
            if problem is not None:
                yield Message(subject, problem, remedy or "…")


def _in_cpp(path: Path) -> Iterator[Message]:
    """Texts in C++: the literals of a statement, with "…" for the parts between them. Whole sentences only."""
    source = re.sub(r"//.*", "", path.read_text())
    for begin in RAISED.finditer(source):
        found = STATEMENT.match(source, begin.end())
        statement = found[0] if found else ""
        literals = list(LITERAL.finditer(statement))
        text, end = "", 0
        for literal in literals:
            between = statement[end : literal.start()]
            value = re.sub(r"process_set\.controller->GetRank\(\)|[\s<>+(),]", "", between)
            text += ("…" if value else "") + literal[1].replace("\\", "")
            end = literal.end()
        if re.search(r"[.:?]\s*$", text) and len(text.split()) > 4:
            yield Message(IN_CPP, text[1:] if text[0] == "…" and text[1].isupper() else text, "")


def messages() -> list[Message]:
    """All of them, in the order of subjects and of the alphabet."""
    paths = [path for floor in ("plugin", "frameworks", "launch") for path in sorted((ROOT / floor).rglob("*.py"))]
    order = [*dict.fromkeys(subject for _, subject in SUBJECTS), NOTES, IN_CPP]
    found = {message for path in paths for message in _messages(path)}
    found |= {message for path in (ROOT / "plugin" / "bridge").rglob("*.cc") for message in _in_cpp(path)}
    return sorted(found, key=lambda one: (order.index(one.subject), one.problem.lstrip("…\"' ").lower(), one))


def _cell(text: str) -> str:
    """Return a text for a cell of a table: no bars, no new lines, nothing that markdown would interpret."""
    parts = re.sub(r"…(\W{0,2}…)+", "…", " ".join(text.split())).split("`")
    parts[::2] = [re.sub(r"([\\*_<>\[\]])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts).replace("|", "\\|")


def messages_page() -> str:
    """The whole of docs/reference/messages.md."""
    parts = [HEAD]
    found = messages()
    for subject in dict.fromkeys(one.subject for one in found):
        parts.append(
            f"\n## {subject}\n\n" + ("" if subject in (NOTES, IN_CPP) else "| message | remedy |\n| --- | --- |\n")
        )
        for one in found:
            if one.subject == subject:
                row = f"| {_cell(one.problem)} | {_cell(one.remedy)} |\n" if one.remedy else f"- {_cell(one.problem)}\n"
                parts.append(row)
    return "".join(parts)


if __name__ == "__main__":
    print(messages_page(), end="")
