"""Error of a cluster that cannot be made, and of commands in it that do not end."""

from __future__ import annotations

from paceline.errors import UserError


class ClusterError(UserError):
    """A step of building, using or removing a cluster failed.

    `output`: what the command printed before (stdout, then stderr); empty if there is none.
    """

    def __init__(self, problem: str, remedy: str, output: str = "") -> None:
        super().__init__(problem, remedy)
        self.output = output
        if output:
            self.args = (f"{problem}\n{remedy}\nOutput until then:\n{output}",)

    def __reduce__(self) -> tuple[type[ClusterError], tuple[str, str, str]]:
        return type(self), (self.problem, self.remedy, self.output)
