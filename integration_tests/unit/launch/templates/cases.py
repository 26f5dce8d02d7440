"""Common parts of this folder's tests: every kind of file for 1, 2 and 16 nodes, with and without GPUs; schemas."""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from integration_tests.support.packages import ROOT
from paceline.launch import cli
from paceline.launch.templates.command import SCHEDULERS
from paceline.launch.templates.scheduler import Kind, Scheduler

NODES = (1, 2, 16)
GPUS = (0, 4)
RANKS_PER_NODE = 4  # one per GPU where there are GPUs
# Special characters of shells, YAML, Kubernetes, compose or Docker, which must reach the script unchanged.
COMMAND = ("python", "train.py", "--note", 'it\'s $(HOME) & "$5" `x` \\ #1: {a}', "--", "-x=~*?", "@{name}")
VARIABLE = ("NOTE", '50% of $HOME $$ "it\'s" \\ 1')
FOR_EVERY_CLUSTER = (
    "--fusion", "optimal", "--exchange", "pipelined", "--env", "=".join(VARIABLE), "--cores", "3", "--memory", "64G",
    "--name", "digits",
)  # fmt: skip
FOR_CLUSTERS_WITH_TIME = ("--time", "1-02:30:00")


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli.main, ["template", *words])


def printed(*words: str) -> str:
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


@dataclass(frozen=True)
class Case:
    scheduler: Scheduler
    kind: Kind
    nodes: int
    gpus: int

    @property
    def id(self) -> str:
        return f"{self.scheduler.name}-{self.kind.name}-{self.nodes}-{'gpu' if self.gpus else 'cpu'}"

    @property
    def ranks(self) -> int:
        return self.nodes * RANKS_PER_NODE

    def words(self) -> list[str]:
        """All options that this kind supports."""
        cannot = self.kind.cannot
        words = [self.scheduler.name, f"--{self.scheduler.chooser}", self.kind.name]
        pairs = [*zip(FOR_EVERY_CLUSTER[::2], FOR_EVERY_CLUSTER[1::2]), FOR_CLUSTERS_WITH_TIME]
        pairs += [("--nodes", str(self.nodes)), ("--ranks-per-node", str(RANKS_PER_NODE))]
        pairs += [("--setup", "module load python")]
        pairs += [("--gpus", str(self.gpus))] if self.gpus else []
        pairs += [("--image", "registry.example.org/train:1")] if "image" in self.kind.needs else []
        for flag, value in pairs:
            if flag.removeprefix("--") not in cannot:
                words += [flag, value]
        return [*words, *COMMAND]

    def text(self) -> str:
        return printed(*self.words())


def cases(*schedulers: str, kind: str | None = None) -> list[Case]:
    """Rows of the table, for these schedulers or all. Kinds for one machine have one node."""
    return [
        Case(scheduler, one, nodes, gpus)
        for scheduler in SCHEDULERS
        if not schedulers or scheduler.name in schedulers
        for one, nodes, gpus in itertools.product(scheduler.kinds, NODES, GPUS)
        if (nodes == 1 or "nodes" not in one.cannot) and kind in (None, one.name)
    ]


def table(*schedulers: str, kind: str | None = None, nodes: tuple[int, ...] = NODES) -> pytest.MarkDecorator:
    """Decorator: run the test for each case with these numbers of nodes, passed as `case`."""
    chosen = [case for case in cases(*schedulers, kind=kind) if case.nodes in nodes]
    return pytest.mark.parametrize("case", chosen, ids=lambda case: case.id)


def needed(module: str) -> None:
    """Skip, with the reason, if the extra `templates` is not installed."""
    pytest.importorskip(module, reason="the extra `templates` is not installed")


def page(name: str) -> str:
    return (Path(ROOT) / "docs" / f"{name}.md").read_text()


CRD_URL = "https://raw.githubusercontent.com/kubeflow/mpi-operator/v0.8.0/manifests/base/kubeflow.org_mpijobs.yaml"
CRD_SHA256 = "78b0131f931fcc8d99f6ce0407281f41b62527e443ec691d26d9634b390ad3bb"
CRD_FILE = "MPIJOB_CRD"  # variable with the path of a copy, for machines without internet
ANSWER_S = 10


def objects(text: str) -> list[dict[str, Any]]:
    """Objects in a file, read strictly: a repeated key is an error."""
    return list(yaml.load_all(text, Loader=_Strict))


class _Strict(yaml.SafeLoader):
    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key stands twice: {keys}"
        return super().construct_mapping(node, deep)


def mpijob_schema() -> dict[str, Any]:
    """Schema of MPIJob v2beta1, made strict: unknown fields, which a cluster would silently drop, are errors.

    It comes from a copy, or from the operator's release and is kept in the environment; skips the test without either.
    """
    kept = Path(os.environ.get(CRD_FILE) or Path(sys.prefix) / "schemas" / "mpijobs-v0.8.0.yaml")
    if not kept.exists():
        try:
            with urllib.request.urlopen(CRD_URL, timeout=ANSWER_S) as answer:
                data = answer.read()
        except (OSError, urllib.error.URLError) as error:
            pytest.skip(f"the schema of MPIJob cannot be fetched ({error}); {CRD_FILE} may name a copy of {CRD_URL}")
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(data)
    data = kept.read_bytes()
    assert hashlib.sha256(data).hexdigest() == CRD_SHA256, f"{kept} is not {CRD_URL}"
    definition = yaml.load(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    (version,) = (one for one in definition["spec"]["versions"] if one["name"] == "v2beta1")
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    _make_strict(schema)
    # The CRD leaves metadata to Kubernetes.
    schema["properties"]["metadata"]["additionalProperties"] = True
    return schema


def _make_strict(schema: Any) -> None:
    if isinstance(schema, list):
        for one in schema:
            _make_strict(one)
    if isinstance(schema, dict):
        if "properties" in schema and "additionalProperties" not in schema:
            schema["additionalProperties"] = False
        for one in schema.values():
            _make_strict(one)


def kubeflow(thing: dict[str, Any]) -> None:
    """Check a TrainJob or TrainingRuntime against the models of Kubeflow Trainer, which must know all fields."""
    from kubeflow_trainer_api import models

    model = getattr(models, f"TrainerV1alpha1{thing['kind']}")
    read = model.from_dict(thing)
    assert read.to_dict() == thing, "the models do not know all of it"
