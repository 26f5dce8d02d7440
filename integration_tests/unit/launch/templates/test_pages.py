"""The complete job on each page of docs/ is what the command beside it prints."""

from __future__ import annotations

import re
import shlex

import pytest

from integration_tests.unit.launch.templates.cases import page, printed
from paceline.launch.templates.command import SCHEDULERS

_FILE = re.compile(r"^    (paceline template .*?)\n\n```[a-z]*\n(.*?)^```$", re.M | re.S)


@pytest.mark.parametrize("name", [scheduler.name for scheduler in SCHEDULERS])
def test_page_has_the_file_that_the_command_prints(name: str) -> None:
    shown = _FILE.findall(page(name))
    assert shown, f"docs/{name}.md has no command `paceline template` followed by its file"
    for command, file in shown:
        words = shlex.split(command.replace("\\\n", " "))[2:]
        at = words.index("-o")
        # The page names the file that -o would write; it is printed here.
        text = printed(*words[:at], *words[at + 2 :])
        assert _without_first_line(text) == _without_first_line(file), f"make it anew: {command}"


def _without_first_line(text: str) -> list[str]:
    return [line for line in text.splitlines() if "Made by: " not in line]


@pytest.mark.parametrize("name", [scheduler.name for scheduler in SCHEDULERS])
def test_page_names_every_kind(name: str) -> None:
    (scheduler,) = (one for one in SCHEDULERS if one.name == name)
    text = page(name)
    assert [kind.name for kind in scheduler.kinds if f"--{scheduler.chooser} {kind.name}" not in text] == []
    assert f"({name}.md)" in page("README")
    assert f"({name}.md)" in page("command")
