"""Valid names of graph nodes."""

from __future__ import annotations

import urllib.parse


def node_name(name: str) -> str:
    """Encode `name` in characters that a graph node may have after the first; a slash would end the name."""
    return urllib.parse.quote(name, safe="").replace("%", ">").replace("~", ">7E")
