"""Folders with other projects' programs: checkouts of yours, which nothing is written to."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import UserError

FOLDER = "outside"  # of checkouts, ignored by git


@dataclass(frozen=True)
class Source:
    """A repository at `address`, of `licence`.

    `files`: paths in it that a case needs. `tag`: of the checkout; "" for the newest commit. `packages`: Python's names
    of packages that the program imports and Paceline does not need.
    """

    name: str
    address: str
    licence: str
    files: tuple[str, ...]
    tag: str = ""
    packages: tuple[str, ...] = ()

    def find(self, folder: str | None) -> Path:
        """Return the folder of the checkout. Raises UserError without it, its files or the packages."""
        place = Path(folder) if folder else Path(FOLDER) / self.name
        missing = [path for path in self.files if not (place / path).exists()]
        if missing:
            branch = f"--branch {self.tag} " if self.tag else ""
            raise UserError(
                f"{place.absolute()} has no {missing[0]} of {self.address}.",
                f"Run `git clone --depth 1 {branch}{self.address} {place}`, or give folder= of a checkout.",
            )
        for package in self.packages:
            if importlib.util.find_spec(package) is None:
                raise UserError(f"{self.name} needs the package {package}.", f"Run `pip install {package}`.")
        return place.absolute()


PARAM = Source("param", "https://github.com/facebookresearch/param", "MIT", ("train/comms/pt/comms.py",))
PARAM_TRACE = Source(
    "param", PARAM.address, "MIT", ("et_replay/tests/inputs/1.1.0-chakra.0.0.4/resnet_2gpu_et.json.gz",)
)
HOROVOD_TORCH = Source(
    "horovod",
    "https://github.com/horovod/horovod",
    "Apache-2.0",
    ("examples/pytorch/pytorch_synthetic_benchmark.py",),
    "v0.28.1",
    ("torchvision",),
)
HOROVOD_KERAS = Source(
    "horovod",
    HOROVOD_TORCH.address,
    "Apache-2.0",
    ("examples/tensorflow2/tensorflow2_keras_synthetic_benchmark.py",),
    "v0.28.1",
    ("tensorflow",),
)
KUNGFU = Source(
    "KungFu",
    "https://github.com/lsds/KungFu",
    "Apache-2.0",
    ("tests/go/fakemodel/resnet50-imagenet.go", "tests/go/fakemodel/vgg16-imagenet.go", "tests/go/fakemodel/bert.go"),
)
