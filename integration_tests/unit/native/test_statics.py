"""Nothing of ours is destroyed while Horovod's background thread may still use it.

At the end of a process static objects are destroyed, those inside functions before Horovod's own state, whose
destructor only then ends the background thread. So core and bridge have no static object with a destructor that does
anything: what is kept is made with `new` and never deleted.
"""

from __future__ import annotations

import re
from pathlib import Path

import paceline.bridge
import paceline.core

_FOLDERS = [Path(str(package.__file__)).parent for package in (paceline.bridge, paceline.core)]
_STATIC = re.compile(r"^\s*static\s+(?!constexpr|inline\s+constexpr|assert|std::once_flag)[^(]*[=;{]")
_KEPT = re.compile(r"^\s*static\s+(const\s+)?[\w:<>]+\s*\*\s*(const\s+)?\w+\s*=\s*new\b")
_IN_NAMESPACE = re.compile(r"^(?:inline\s+)?(?:const\s+)?std::(?!mutex\b|atomic\b)[\w:<>, *]+\s\w+\s*(?:[={;]|\(\")")


def _destroyed(text: str) -> list[str]:
    return [
        line.strip()
        for line in text.splitlines()
        if (_STATIC.match(line) and not _KEPT.match(line)) or _IN_NAMESPACE.match(line)
    ]


def test_statics_that_are_destroyed_are_found() -> None:
    bad = ["  static const auto context = std::make_shared<Context>();", "static std::string name;",
           'const std::string kPrefix = "x";', "std::vector<int> all;"]  # fmt: skip
    good = ["  static auto* kept = new std::string;", "  static const auto* kept = new std::string(one);",
            "std::mutex mutex;", "static constexpr int64_t kOne = 1;", "  static int32_t Next();",
            "std::string Name(int n) {", "  const std::string local = name;"]  # fmt: skip
    assert _destroyed("\n".join(bad)) == [line.strip() for line in bad]
    assert _destroyed("\n".join(good)) == []


def test_nothing_is_destroyed_before_the_background_thread_ends() -> None:
    sources = [path for folder in _FOLDERS for path in sorted(folder.rglob("*")) if path.suffix in (".cc", ".h")]
    assert len(sources) > 50
    found = {path.name: lines for path in sources if (lines := _destroyed(path.read_text()))}
    assert not found, "make them with `new` and never delete them, or make them constexpr"
