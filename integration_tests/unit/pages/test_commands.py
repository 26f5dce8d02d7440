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


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("paceline run -np 2 --exchnge local python train.py", "an option --exchnge"),
        ("paceline run -np 2 --exchange locl python train.py", "locl"),
        ("paceline run -np two python train.py", "invalid int"),
        ("paceline run -np 2", "no command"),
        ("paceline schedule", "No such command"),
        ("paceline plan stages gpipe --stages few", "few"),
        ("srun -n 2 paceline rank --size 2 --ranks 1 -- python train.py", "No such option"),
        ("paceline template slurm --time long python train.py", "--time long"),
        ("horovodrun --min-np 2 python train.py", "required: -np"),
        ("horovodrun -np 2 python examples/digits_torch.py --epoch-count 3", "no option --epoch-count"),
        ("PACELINE_FUSION=optimal PACELINE_ARMED=yes horovodrun -np 2 python train.py", "PACELINE_ARMED"),
        ("PACELINE_DEBUG=arm=no horovodrun -np 2 python train.py", "arm"),
        ("HOROVOD_CYCLE=1 horovodrun -np 2 python train.py", "HOROVOD_CYCLE"),
        ("mpirun -np 2 -x PACELINE_MODE=a python train.py", "PACELINE_MODE"),
        ("make tests", "no target tests"),
        ("make test TEST=unit", "does not use TEST"),
        ("python -m examples.benchmarks resnet20 systems=stock,ours", "ours"),
        ("sudo env PATH=$PATH python -m examples.benchmarks resnet-20", "no case resnet-20"),
        ("python -m integration_tests.killed", "no module"),
        ("python -m examples.benchmarks.cluster --hosts 2 -- paceline advise -np 2 --turn 3 python train.py", "--turn"),
    ],
)
def test_mistakes_are_found(line: str, said: str) -> None:
    (words,) = pages.simple_commands(line)
    found = list(page_commands.problems(pages.Command("a page", 1, words, True)))
    assert found and said in found[0], found
