"""Names that nodes of a graph may have."""

from __future__ import annotations

import urllib.parse


def node_name(name: str) -> str:
    """`name` in characters that a node of a graph may have, not as the first; a slash would end it there."""
    return urllib.parse.quote(name, safe="").replace("%", ">").replace("~", ">7E")
