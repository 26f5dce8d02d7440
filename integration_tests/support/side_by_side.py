"""Which tests run at the same time, where several processes run tests (`make test JOBS=2`)."""

from __future__ import annotations

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling


class OneFolderAtATime(LoadScopeScheduling):
    """A folder whose tests start processes stays in one process, because ranks slow each other down.

    The largest group of tests begins.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = PurePosixPath(nodeid.partition("::")[0])
        folder = file.parts[1] if len(file.parts) > 1 else ""
        return str(file) if folder == "unit" else folder
