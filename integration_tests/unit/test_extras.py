"""Messages name packages to install that every index has, in the versions of pyproject.toml."""

from __future__ import annotations

import re

import pytest

from integration_tests.support.packages import ROOT
from paceline.extras import how_to_install

_FROM_AN_INDEX = re.compile(r"pip install[^\n]*[ '\"]paceline\b(?!/)")


def test_command_has_the_packages_of_an_extra() -> None:
    command = how_to_install("torch")
    assert command.startswith("pip install ") and "paceline" not in command
    assert re.fullmatch(r"pip install '?torch[=<>!~].*", command)


def test_extra_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="no extra 'mxnet'"):
        how_to_install("mxnet")


def test_no_message_names_paceline_as_a_package_of_an_index() -> None:
    for folder in ("plugin", "frameworks", "launch", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not _FROM_AN_INDEX.search(path.read_text()), path
