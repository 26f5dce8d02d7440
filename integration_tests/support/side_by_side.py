"""Which tests run at the same time, where several processes run tests (`make test JOBS=2`)."""

from __future__ import annotations

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

# Folders of ranks that another process may take, which is idle for long else: they depend least on how ranks keep pace.
_APART = frozenset({"launch", "record"})


class OneFolderAtATime(LoadScopeScheduling):
    """A folder whose tests start processes stays in one process, because ranks slow each other down.

    The largest group of tests begins. `_APART` are groups of their own.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = PurePosixPath(nodeid.partition("::")[0])
        folder, below = [*file.parts, "", ""][1:3]
        if folder == "ranks" and below in _APART:
            return f"{folder}/{below}"
        return str(file) if folder == "unit" else folder
