"""What a cluster raises when it cannot be made or a command in it does not end."""

from __future__ import annotations

from paceline.errors import UserError


class ClusterError(UserError):
    """A step of building, using or removing a cluster failed.

    `output` is what the command concerned had printed until then (stdout, then stderr); empty where there is none.
    """

    def __init__(self, problem: str, remedy: str, output: str = "") -> None:
        super().__init__(problem, remedy)
        self.output = output
        if output:
            self.args = (f"{problem}\n{remedy}\nOutput until then:\n{output}",)

    def __reduce__(self) -> tuple[type[ClusterError], tuple[str, str, str]]:
        return type(self), (self.problem, self.remedy, self.output)
