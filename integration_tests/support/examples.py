"""Output of our examples, for their tests."""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
from collections.abc import Sequence
from typing import Any

from paceline.launch.runs import result_in


def printed(example: str, *calls: Sequence[str]) -> list[str]:
    """Return the output of an example for each list of arguments, all in this process: loading is slow."""
    main = importlib.import_module(f"paceline.examples.{example}").main
    said = []
    for words in calls:
        sys.argv = [example, *words]
        with contextlib.redirect_stdout(io.StringIO()) as output:
            main()
        said.append(output.getvalue())
    return said


def results(said: str) -> list[dict[str, Any]]:
    """Return the results among the lines that an example printed."""
    return [result for result in map(result_in, said.splitlines()) if result is not None]
