"""Test-wide settings. Every test has a time limit (pyproject.toml), because a hang is a failure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from integration_tests.support import ranks
from integration_tests.support.skips import StrictSkips, Within, why_not
from paceline import config

# Marks of tests that run only with the option of the same name, and a description of the marked tests.
ON_REQUEST = {
    "soak": "takes many minutes, looks for rare failures; runs under `make soak`",
    "more": "another number of ranks or a longer run of what `make test` has; runs under `make test-more`",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--patch NAME`: only the regression tests of that patch; `--soak`, `--more`: also the tests with that mark.

    `--strict-skips`: a test that is skipped for a reason that is not expected fails the run. `--within S`: tests that
    would begin more than S seconds from now are skipped.
    """
    parser.addoption("--patch", default=None, help="run only the regression tests of this patch of Horovod")
    parser.addoption("--strict-skips", action="store_true", help="fail where a test is skipped that should run here")
    parser.addoption("--within", type=float, metavar="S", help="skip what would begin more than S seconds from now")
    parser.addoption("--no-forks", action="store_true", help="start ranks one by one, as launchers do")
    for name, meaning in ON_REQUEST.items():
        parser.addoption(f"--{name}", action="store_true", help=f"run these tests, too: {meaning}")


def pytest_configure(config: pytest.Config) -> None:
    """Declare our markers. Commands under test use the width of a pipe, whatever the terminal or pytest-xdist sets."""
    os.environ.pop("COLUMNS", None)
    if config.getoption("--within") is not None:
        config.pluginmanager.register(Within(config.getoption("--within")))
    ranks.forks = not config.getoption("--no-forks")
    if config.getoption("--strict-skips") and not hasattr(config, "workerinput"):  # process that gets all reports
        config.pluginmanager.register(StrictSkips())
    config.addinivalue_line("markers", "patch(name): regression test of this patch (plugin/horovod/patches/table.py)")
    config.addinivalue_line("markers", "needs(program, ...): runs under `make test-more`; skipped without")
    for name, meaning in ON_REQUEST.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that were not requested; tests of one module that can use the same ranks follow each other."""
    patch = config.getoption("--patch")
    not_asked_for = [name for name in ON_REQUEST if not config.getoption(f"--{name}")]

    def wanted(item: pytest.Item) -> bool:
        if any(item.get_closest_marker(name) for name in not_asked_for):
            return False
        if item.get_closest_marker("needs") and len(not_asked_for) == len(ON_REQUEST):
            return False
        marker = item.get_closest_marker("patch")
        return patch is None or (marker is not None and patch in marker.args)

    left_out = [item for item in items if not wanted(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if wanted(item)]
    for item in items:
        programs = [name for mark in item.iter_markers("needs") for name in mark.args]
        if reason := why_not(programs):
            item.add_marker(pytest.mark.skip(reason=reason))
    modules = {path: number for number, path in enumerate(dict.fromkeys(item.path for item in items))}
    items.sort(key=lambda item: (modules[item.path], *_world(item)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from integration_tests.support.side_by_side import OneFolderAtATime

    return OneFolderAtATime(config, log)


def _world(item: pytest.Item) -> tuple[str, str, int]:
    """Return the options that decide which ranks a test runs on; variables of a case (`worlds` of ranks) come first."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    backend = str(parameters.get("world", ""))
    size = parameters.get("size", 0)
    return backend, getattr(getattr(item, "function", None), "env_key", ""), size if isinstance(size, int) else 0


@pytest.fixture(autouse=True)
def _fresh_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test's variables count at once, without an init()."""
    monkeypatch.setattr(config, "_current", None)


@pytest.fixture(scope="session", autouse=True)
def _end_worlds() -> Iterator[None]:
    yield
    ranks.end_all()
