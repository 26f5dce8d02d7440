"""What Kubeflow's objects must look like, by its published models and its CRD; Kubernetes' own have a package."""

from __future__ import annotations

import hashlib
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

CRD_URL = "https://raw.githubusercontent.com/kubeflow/mpi-operator/v0.8.0/manifests/base/kubeflow.org_mpijobs.yaml"
CRD_SHA256 = "78b0131f931fcc8d99f6ce0407281f41b62527e443ec691d26d9634b390ad3bb"
CRD_FILE = "MPIJOB_CRD"  # variable that names a copy, where the internet is out of reach
ANSWER_S = 10


def objects(text: str) -> list[dict[str, Any]]:
    """The objects in a file, read strictly: a key that stands twice is an error."""
    return list(yaml.load_all(text, Loader=_Strict))


class _Strict(yaml.SafeLoader):
    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key stands twice: {keys}"
        return super().construct_mapping(node, deep)


def mpijob_schema() -> dict[str, Any]:
    """The schema of MPIJob v2beta1, made strict: unknown fields, which a cluster would drop in silence, are errors.

    From a copy, or from the operator's release and kept in the environment; skips the test where there is neither.
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
    """Hold a TrainJob or TrainingRuntime against the models of Kubeflow Trainer; they must know all of it."""
    from kubeflow_trainer_api import models

    model = getattr(models, f"TrainerV1alpha1{thing['kind']}")
    read = model.from_dict(thing)
    assert read.to_dict() == thing, "the models do not know all of it"
