"""Fusion policies: naming, registration, identity and serialization to other processes."""

from __future__ import annotations

import base64
import functools
import json
import os
import pickle
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import UserError
from paceline.fusion import CostModel, Gradient, fingerprint, plan_file, policies, register, serialize
from paceline.fusion.policies import Policy
from paceline.fusion.resolve import resolve
from paceline.registry.policies import BUILT_IN

MODULE = """
import collections

def pairs(gradients, costs, at_once=2):
    names = [gradient.name for gradient in gradients]
    sizes = {"small", "medium", "large"}  # a set: its order differs from process to process
    return [names[at:at + helper(at_once)] for at in range(0, len(names), at_once)]

def helper(value):
    return collections.Counter([value]).most_common()[0][0]

class Holder:
    @staticmethod
    def whole(gradients, costs):
        return [range(len(gradients))]

number = 5
"""


def pairs(gradients: Sequence[Gradient], costs: CostModel) -> list[list[str]]:
    names = [gradient.name for gradient in gradients]
    return [names[at : at + 2] for at in range(0, len(names), 2)]


def alone(gradients: Sequence[Gradient], costs: CostModel) -> list[list[int]]:
    return [[index] for index in range(len(gradients))]


def up_to(count: int) -> Callable[[Sequence[Gradient], CostModel], list[list[int]]]:
    def policy(gradients: Sequence[Gradient], costs: CostModel) -> list[list[int]]:
        return [list(range(len(gradients)))[at : at + count] for at in range(0, len(gradients), count)]

    return policy


class Callable42:
    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self, gradients: Sequence[Gradient], costs: CostModel) -> list[list[int]]:
        return up_to(self.count)(gradients, costs)


@pytest.fixture(autouse=True)
def _registered_here_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "_registered", {})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The present folder, with the module users_module in it and nothing of it on sys.path."""
    (tmp_path / "users_module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    sys.modules.pop("users_module", None)


GRADIENTS = tuple(Gradient(f"layer{7 - index}", 100 + index, index / 8) for index in range(5))
COSTS = CostModel.linear(1.0, 0.5)


def groups_of(policy: Policy) -> list[list[Any]]:
    assert policy.function is not None
    return [list(group) for group in policy.function(GRADIENTS, COSTS)]


def test_built_in_names() -> None:
    found = [resolve(name) for name in BUILT_IN]
    assert [policy.name for policy in found] == ["threshold", "none", "single", "mgwfbp", "optimal"]
    assert [policy.makes_plans for policy in found] == [False, True, True, True, True]
    assert all(policy.function is None for policy in found)
    assert resolve(found[4]) is found[4]
    assert resolve(" optimal ") == found[4]


def test_registered_functions_and_callable_objects() -> None:
    register("two-by-two", pairs)
    decorated = register("decorated")(alone)
    assert groups_of(resolve("two-by-two")) == [["layer7", "layer6"], ["layer5", "layer4"], ["layer3"]]
    assert groups_of(resolve("decorated")) == groups_of(resolve(decorated)) == [[0], [1], [2], [3], [4]]
    assert resolve("decorated").name == "decorated"
    assert resolve("two-by-two").makes_plans
    register("two-by-two", pairs)  # again, as a notebook does
    assert resolve(pairs).name == "pairs"
    assert groups_of(resolve(Callable42(3))) == [[0, 1, 2], [3, 4]]
    assert resolve(Callable42(3)).name == "Callable42"

    def optimal(gradients: Sequence[Gradient], costs: CostModel) -> list[list[int]]:
        return []

    own = resolve(optimal)
    assert own.name.endswith("optimal") and own.makes_plans
    assert own.name != "optimal", "a table must tell it from the built-in one"


@pytest.mark.parametrize(
    ("name", "function", "said"),
    [
        *[(name, pairs, "cannot be called") for name in ("", "a:b", "two words", "a,b")],
        ("optimal", pairs, "optimal is built in"),
        ("mine", alone, r"mine is registered already: it is .*:pairs"),
        ("five", 5, "is 5, no function"),
    ],
)
def test_names_that_cannot_be_registered(name: str, function: Any, said: str) -> None:
    register("mine", pairs)
    with pytest.raises(UserError, match=said):
        register(name, function)


def test_unknown_name_names_the_nearest_and_the_ways_to_register() -> None:
    register("fastest", pairs)
    with pytest.raises(UserError) as caught:
        resolve("optimul")
    assert "'optimul'" in caught.value.problem
    for words in ("Did you mean optimal?", "paceline.fusion.register", "paceline.fusion", "module:function"):
        assert words in caught.value.remedy
    with pytest.raises(UserError, match=r"Did you mean fastest\?"):
        resolve("fastesd")
    with pytest.raises(UserError, match="cannot be 7"):
        resolve(7)  # type: ignore[arg-type]


def test_module_and_function(folder: Path) -> None:
    before = list(sys.path)
    policy = resolve("users_module:pairs")
    assert policy.name == "users_module:pairs"
    assert groups_of(policy) == [["layer7", "layer6"], ["layer5", "layer4"], ["layer3"]]
    assert groups_of(resolve("users_module:Holder.whole")) == [[0, 1, 2, 3, 4]]
    (folder / "broken_module.py").write_text("import absent_thing_of_mine\n")
    for spec, words in {
        "no_such_module:pairs": "'no_such_module' raises ModuleNotFoundError",
        "broken_module:pairs": "No module named 'absent_thing_of_mine'",
        "users_module:pears": "Did you mean pairs?",
        "users_module:number": "is 5, no function",
        "users_module:": "cannot be loaded",
        ":pairs": "cannot be loaded",
    }.items():
        with pytest.raises(UserError) as caught:
            resolve(spec)
        assert words in str(caught.value), spec
    assert sys.path == before


def test_entry_point_of_an_installed_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    information = folder / "users_package-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: users-package\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[paceline.fusion]\npaired = users_module:pairs\ngone = users_module:gone\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    policy = resolve("paired")
    assert policy.name == "paired"
    assert groups_of(policy)[0] == ["layer7", "layer6"]
    assert policy.digest == resolve("users_module:pairs").digest
    with pytest.raises(UserError, match=r"gone of users-package cannot be loaded from users_module:gone: Attribute"):
        resolve("gone")
    with pytest.raises(UserError, match=r"Did you mean paired\?"):
        resolve("pairet")


def test_digests_differ_between_policies_and_fit_into_a_double() -> None:
    wanted: list[Any] = [*BUILT_IN, pairs, alone, up_to(2), up_to(3), Callable42(2), Callable42(3)]
    wanted += [functools.partial(_with_option, at_once=2), functools.partial(_with_option, at_once=3)]
    wanted += [lambda gradients, costs: [[0]], lambda gradients, costs: [[1]]]
    digests = [resolve(one).digest for one in wanted]
    assert len(set(digests)) == len(digests)
    assert all(0 <= digest < 2**52 and int(float(digest)) == digest for digest in digests)
    assert resolve(up_to(3)).digest == resolve(up_to(3)).digest


def _with_option(gradients: Sequence[Gradient], costs: CostModel, at_once: int) -> list[list[int]]:
    return up_to(at_once)(gradients, costs)


def in_another_process(folder: Path, code: str, seed: int) -> str:
    env = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_digests_are_those_of_the_function_however_it_is_named_and_wherever_it_is_read(folder: Path) -> None:
    by_module = resolve("users_module:pairs")
    import users_module  # type: ignore[import-not-found]

    register("named", users_module.pairs)
    assert resolve("named").digest == by_module.digest == resolve(users_module.pairs).digest
    text = serialize.to_text(by_module)
    assert text.startswith("pickle:") and text.isascii() and not set(text) & set(" \n'\"$")  # a shell may see it
    assert resolve(text).digest == by_module.digest

    def recursive(gradients: Sequence[Gradient], costs: CostModel) -> list[list[int]]:
        return [*recursive(gradients[:-1], costs), [len(gradients) - 1]] if gradients else []

    assert fingerprint.of(recursive) == fingerprint.of(recursive)
    assert groups_of(resolve(recursive)) == [[0], [1], [2], [3], [4]]
    code = """
from paceline.fusion.resolve import resolve
def local(gradients, costs, kind=frozenset(["a", "b", "c", "d"])):
    return [] if "x" in {"p", "q", "r", "s"} else [[0]]
print([resolve(one).digest for one in ("optimal", "users_module:pairs", local)])
"""
    (output,) = {in_another_process(folder, code, seed) for seed in (1, 2)}
    assert json.loads(output)[:2] == [resolve("optimal").digest, by_module.digest]


def as_text(version: tuple[int, int], function: bytes) -> str:
    payload = pickle.dumps((version, "mine", 5, False, function))
    return "pickle:" + base64.urlsafe_b64encode(zlib.compress(payload)).decode()


def test_functions_that_cannot_be_sent_and_texts_that_cannot_be_used() -> None:
    text = serialize.to_text(resolve(pairs))
    short = "pickle:" + base64.urlsafe_b64encode(zlib.compress(pickle.dumps((1, 2)))).decode()
    changed = text[:60] + ("A" if text[60] != "A" else "B") + text[61:]
    for damaged in (text[:40], changed, short, "pickle:", "pickle:%%%", "pickle:bm9uc2Vuc2U="):
        with pytest.raises(UserError, match="is damaged"):
            resolve(damaged)
    with pytest.raises(UserError, match=r"mine was made by Python 2\.7, this rank runs"):
        resolve(as_text((2, 7), b""))
    with pytest.raises(UserError, match="mine cannot be loaded here: ModuleNotFoundError"):
        resolve(as_text(sys.version_info[:2], b"cno_such_thing\nf\n."))
    # A function that cannot be pickled.
    lock = threading.Lock()
    table = os.urandom(200_000)
    with pytest.raises(UserError, match="cannot be sent to the ranks: TypeError"):
        serialize.to_text(resolve(lambda gradients, costs: [[0]] if lock else []))
    with pytest.raises(UserError, match=r"bytes as text; 60,000 can be sent") as caught:
        serialize.to_text(resolve(lambda gradients, costs: [[table[0]]]))
    assert "entry point of group paceline.fusion" in caught.value.remedy


def test_plan_file_is_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [["layer3", "layer7"], ["layer4"]]
    plan_file.write(tmp_path / "plan.json", "mine", groups)
    plan_file.write(tmp_path / "same.json", "optimal", groups)
    plan_file.write(tmp_path / "turned.json", "mine", [["layer7", "layer3"], ["layer4"]])
    monkeypatch.chdir(tmp_path)
    policy = resolve("file:plan.json")
    assert (policy.name, policy.keeps_order, policy.makes_plans) == ("file:plan.json", True, True)
    assert groups_of(policy) == groups
    assert policy.digest == resolve("file:same.json").digest
    assert policy.digest != resolve("file:turned.json").digest


def _content(**fields: Any) -> bytes:
    return json.dumps({"format": "paceline-plan", "version": 1, **fields}).encode()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff\xfe\x00", "cannot be used"),
        (_content()[:-5], "cut short or not JSON"),
        (b"", "cut short or not JSON"),
        (b"[]", "not a plan of Paceline"),
        (_content(format="paceline-trace"), "not a plan of Paceline"),
        (_content(version=9, groups=[["a"]]), "has version 9, this Paceline reads version 1"),
        (_content(), "has no groups"),
        (_content(groups=[["a"], []]), "group 1 must be a list"),
        (_content(groups=[["a", 3]]), "group 0 must be a list"),
        (_content(groups=[["a"], ["b", "a"]]), "a is in group 0 and in group 1"),
    ],
)
def test_plan_file_that_cannot_be_used(content: bytes | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        resolve(f"file:{path}")
    assert words in caught.value.problem
    assert str(path) in caught.value.problem
    assert "--output" in caught.value.remedy
    with pytest.raises(UserError, match="cannot be written"):
        plan_file.write(tmp_path / "absent" / "plan.json", "mine", [["a"]])


def test_the_package_loads_no_planner_before_it_is_used() -> None:
    code = "import sys, paceline.fusion as f; print('paceline.core._core' in sys.modules); f.CostModel; f.register"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr
    with pytest.raises(ImportError):
        from paceline.fusion import nonsense  # noqa: F401
