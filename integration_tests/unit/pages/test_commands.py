"""Commands, variables and paths on the documentation pages exist."""

from __future__ import annotations

import re

import pytest

from integration_tests.support import page_commands, pages
from integration_tests.support.packages import ROOT

_PATH = re.compile(
    r"(?<![\w/.~$-])((?:plugin|frameworks|launch|docs|examples|integration_tests|\.ci|\.github)/[\w./*-]*[\w*/])"
)
_VARIABLE = re.compile(r"(?<![\w*])((?:PACELINE|HOROVOD)_[A-Z0-9_]*[A-Z0-9])(?![\w*])(?:=([^\s`|,;)\"]*))?")
# Capitals that are not variables.
_OTHER_NAMES = {"PACELINE_ARMED": "an activity of timelines", "PACELINE_CATCH": "a macro", "HOROVOD_STALL": "a prefix"}


@pytest.mark.parametrize("page", pages.pages())
def test_commands_are_accepted_by_their_programs(page: str) -> None:
    found = [problem for command in pages.commands(page) for problem in page_commands.problems(command)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", pages.pages())
def test_variables_are_options_of_paceline_or_of_horovod(page: str) -> None:
    named = {match.groups() for match in _VARIABLE.finditer(pages.text(page)) if match[1] not in _OTHER_NAMES}
    given = sorted((name, (value or "").removesuffix("...").rstrip(".")) for name, value in named)
    found = [problem for name, value in given for problem in page_commands.variable(name, value)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", pages.pages())
def test_files_of_the_repository_exist(page: str) -> None:
    named = set(_PATH.findall(pages.text(page)))
    missing = [path for path in named if "NAME" not in path and not any(ROOT.glob(path.rstrip("/")))]
    assert not missing, sorted(missing)
