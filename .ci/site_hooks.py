"""Steps of the site in addition to rendering docs/ (hooks of mkdocs.yml).

Pages link to files outside docs/, such as examples and tests, by paths that GitHub follows. Each file that is linked
becomes a page of the site, under source/, and links to it are turned there. A link to a file that does not exist stays,
so that MkDocs reports it. The markdown of all pages is in the site, too, for readers of llms.txt.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import latex2mathml.converter
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from integration_tests.support.packages import link_tree  # noqa: E402

LINK = re.compile(r"(?<!`)(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r"^```math\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OUTSIDE = "source"
LANGUAGES = {".py": "python", ".sh": "bash", ".yaml": "yaml", ".json": "json"}


def on_startup(command: str, dirty: bool) -> None:
    """Lay the links by which mkdocstrings finds our modules."""
    link_tree(ROOT / "build" / "site-packages")


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each file outside docs/ that a page links to, and for those that these link to."""
    waiting = [(f"docs/{one.src_uri}", Path(str(one.abs_src_path)).read_text()) for one in files.documentation_pages()]
    added: set[str] = set()
    while waiting:
        path, text = waiting.pop()
        for target in _outside(path, text) - added:
            added.add(target)
            content = (ROOT / target).read_text()
            markdown = target.endswith(".md")
            if markdown:
                waiting.append((target, content))
            shown = content if markdown else _listing(target, content)
            page = File.generated(config, _page(target), content="---\nsearch:\n  exclude: true\n---\n" + shown)
            page.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(page)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links that lead out of docs/, or come from a page from outside; write formulas as MathML."""
    here = page.file.src_uri
    path = _path(here)

    def turned(match: re.Match[str]) -> str:
        target = _target(path, match[2])
        if not target or (target.startswith("docs/") and path.startswith("docs/")):
            return match[0]
        uri = target.removeprefix("docs/") if target.startswith("docs/") else _page(target)
        return match[1] + posixpath.relpath(uri, posixpath.dirname(here) or ".") + match[3]

    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(turned, markdown[end : fence.start()]), FORMULA.sub(_formula, fence[0])]
        end = fence.end()
    return "".join([*parts, LINK.sub(turned, markdown[end:])])


def on_post_build(config: Any) -> None:
    """Put the pages' markdown beside them."""
    for source in sorted((ROOT / "docs").rglob("*.md")):
        shutil.copy(source, Path(config["site_dir"]) / source.relative_to(ROOT / "docs"))


def _target(path: str, link: str) -> str:
    """The file in the repository that `link` in the file `path` means; "" if it is none."""
    if "://" in link or link.startswith("mailto:"):
        return ""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    return target if (ROOT / target).is_file() else ""


def _outside(path: str, text: str) -> set[str]:
    found = {_target(path, match[2]) for match in LINK.finditer(FENCE.sub("", text))}
    return {target for target in found if target and not target.startswith("docs/")}


def _page(target: str) -> str:
    """Place in the site of the page of a file outside docs/."""
    return f"{OUTSIDE}/{target if target.endswith('.md') else target + '.md'}"


def _path(uri: str) -> str:
    """The file in the repository that a page shows."""
    if not uri.startswith(f"{OUTSIDE}/"):
        return f"docs/{uri}"
    path = uri.removeprefix(f"{OUTSIDE}/")
    return path if (ROOT / path).is_file() else path.removesuffix(".md")


def _listing(target: str, content: str) -> str:
    fence = "`" * 6
    return f"# {target}\n\n{fence}{LANGUAGES.get(Path(target).suffix, 'text')}\n{content}\n{fence}\n"


def _formula(match: re.Match[str]) -> str:
    return latex2mathml.converter.convert(match[1].strip(), display="block") + "\n"
