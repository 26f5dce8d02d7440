"""The environment that upstream's tests run in: an older pytest in front of everything that is installed here."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import msgspec

from integration_tests.support.packages import ROOT

PLACE = ROOT / ".upstream" / "venv"
INSTALL_TIMEOUT_S = 300

_HOROVODRUN = """#!{python}
import sys
from horovod.runner.launch import run_commandline
if __name__ == "__main__":  # horovodrun's children import this file again
    sys.exit(run_commandline())
"""


def ensure() -> Path:
    """The environment's folder; made if it is missing or was made for other packages or another Python."""
    project = msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())["project"]
    packages = project["optional-dependencies"]["upstream"]
    base = sysconfig.get_path("purelib")
    stamp, made_for = PLACE / "made-for.txt", "\n".join([sys.executable, base, *packages, _HOROVODRUN])
    if stamp.exists() and stamp.read_text() == made_for:
        return PLACE
    venv.create(PLACE, clear=True, with_pip=True)
    subprocess.run(
        [PLACE / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages],
        check=True,
        timeout=INSTALL_TIMEOUT_S,
    )
    # site.addsitedir appends the other environment, including editable installs.
    (site,) = PLACE.glob("lib/python*/site-packages")
    (site / "layered.pth").write_text(f"import site; site.addsitedir({base!r})\n")
    horovodrun = PLACE / "bin/horovodrun"
    horovodrun.write_text(_HOROVODRUN.format(python=PLACE / "bin/python"))
    horovodrun.chmod(0o755)
    stamp.write_text(made_for)
    return PLACE
