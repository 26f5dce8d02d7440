"""Python on the documentation pages compiles, and the names of Paceline and Horovod that it uses exist."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import subprocess
import sys
from functools import cache

import pytest

from integration_tests.support import pages
from integration_tests.support.page_python import FRAMEWORKS, Use, statements, uses_in_blocks, uses_inline

# Names of `hvd` in inline code that no framework has, with the reason.
INLINE_EXCEPTIONS = {"Name": "any setting of an exchange", "callbacks.NAME": "any callback"}


@cache
def _problems(framework: str, asked: tuple[Use, ...]) -> list[str]:
    questions = json.dumps([(use.name, use.count, use.keywords) for use in asked])
    command = [sys.executable, "-m", "integration_tests.support.page_names", framework]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "torch"}
    done = subprocess.run(command, env=env, input=questions, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    answers: list[str] = json.loads(done.stdout.splitlines()[-1])
    return answers


def _all_problems(framework: str) -> tuple[list[str], list[str]]:
    """Return the problems of the blocks' uses and of those inline, from one process."""
    blocks, inline = uses_in_blocks(framework), uses_inline()
    found = _problems(framework, (*blocks, *inline))
    named = [f"{use.where}: {problem}" for use, problem in zip(blocks, found, strict=False) if problem]
    return named, found[len(blocks) :]


@pytest.mark.parametrize("page", pages.pages())
def test_blocks_compile_and_their_imports_resolve(page: str) -> None:
    for block in pages.blocks(page):
        for statement in statements(block) if block.python else ():
            for node in ast.walk(statement.node):
                if isinstance(node, ast.ImportFrom):
                    _import(node.module or "", [one.name for one in node.names])
                elif isinstance(node, ast.Import):
                    for one in node.names:
                        _import(one.name, [])


def _import(module: str, names: list[str]) -> None:
    """Look for a module of ours or Horovod's; its names only where importing it loads no other framework."""
    if module.partition(".")[0] not in ("paceline", "horovod", "integration_tests"):
        return
    assert importlib.util.find_spec(module) is not None, f"there is no module {module}"
    if names and not module.startswith("horovod."):
        found = importlib.import_module(module)
        for name in names:
            assert hasattr(found, name) or importlib.util.find_spec(f"{module}.{name}"), f"{module} has no {name}"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_names_and_arguments_of_hvd_exist(framework: str) -> None:
    found, _ = _all_problems(framework)
    assert not found, "\n".join(found)


def test_names_in_inline_code_exist_in_a_framework() -> None:
    asked = uses_inline()
    answers = zip(*(_all_problems(framework)[1] for framework in FRAMEWORKS), strict=True)
    wrong = [
        f"{use.where}: {by_framework[0]}"
        for use, by_framework in zip(asked, answers, strict=True)
        if all(by_framework) and use.name not in INLINE_EXCEPTIONS
    ]
    assert not wrong, "\n".join(wrong)
