"""Ray and Spark start ranks: their trainings equal one process, under the driver's settings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support.engine_jobs import ELASTIC, SETTINGS, TRAININGS, UNCHECKED, WORKERS
from integration_tests.support.packages import ROOT
from paceline.launch.templates import engines

LIMIT_S = 500  # Spark and Ray start four trainings one after the other
pytestmark = [pytest.mark.more, pytest.mark.timeout(LIMIT_S + 30)]
NEEDS = {"ray": ["ray"], "spark": ["pyspark", "java"]}
assert NEEDS.keys() == ELASTIC.keys() == engines.ENGINES.keys()
EVERY = [pytest.param(engine, marks=pytest.mark.needs(*needs)) for engine, needs in NEEDS.items()]
# Of what Horovod's modules call; Ray's and Spark's own warnings are theirs.
_OUTDATED = "This API is deprecated and may be removed in future Ray releases"


def run(words: list[str], tmp_path: Path) -> tuple[int, str]:
    """Return exit status and output. Kills the whole session: engines that are stopped leave processes."""
    log = tmp_path / "output"
    env = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}
    if os.environ.items() >= UNCHECKED.items():
        env.update(UNCHECKED)
    # Libraries that override the installed Horovod, too: integration_tests/patches.py.
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))
    with log.open("wb") as file:
        driver = subprocess.Popen(words, stdout=file, stderr=file, env=env, cwd=tmp_path, start_new_session=True)
        try:
            status = driver.wait(LIMIT_S)
        finally:
            try:
                os.killpg(driver.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    return status, log.read_text(errors="replace")


def job(tmp_path: Path, *words: str) -> tuple[int, str]:
    return run([sys.executable, "-m", "integration_tests.support.engine_jobs", *words], tmp_path)


def result(output: str) -> Any:
    (line,) = [line for line in output.splitlines() if "RESULT " in line]
    return json.loads(line.partition("RESULT ")[2])


@pytest.mark.patch("worker-environment")
@pytest.mark.parametrize("framework", TRAININGS)
@pytest.mark.parametrize("engine", EVERY)
def test_weights_are_those_of_one_process_under_the_drivers_settings(
    engine: str, framework: str, tmp_path: Path
) -> None:
    status, output = job(tmp_path, "settings", engine, framework)
    assert status == 0, output
    for name, ranks in result(output).items():
        assert [one["rank"] for one in ranks] == list(range(WORKERS))
        assert all(one["settings"] == SETTINGS[name] for one in ranks), f"{name}: {ranks}"
        assert all(one["size"] == WORKERS and one["off"] < 1e-6 for one in ranks), f"{name}: {ranks}"
        assert not any(one["exposed"] for one in ranks)


@pytest.mark.patch("ray-lost-worker")
@pytest.mark.needs("ray")
@pytest.mark.parametrize("framework", TRAININGS)
def test_a_killed_worker_of_ray_is_named_and_the_job_ends(framework: str, tmp_path: Path) -> None:
    status, output = job(tmp_path, "killed", "ray", framework)
    assert status == 1, output
    # Whichever Ray sees first: the worker that died, or the other one's error.
    assert "Rank 1 died" in output[output.rindex("ray.exceptions.") :], output


@pytest.mark.needs("pyspark", "java")
@pytest.mark.parametrize("framework", TRAININGS)
def test_a_killed_worker_of_spark_is_named_and_the_job_ends(framework: str, tmp_path: Path) -> None:
    status, output = job(tmp_path, "killed", "spark", framework)
    assert status == 1 and "Rank 1 died: process" in output, output


@pytest.mark.patch("ray-2")
@pytest.mark.needs("ray")
def test_workers_of_ray_make_no_outdated_call(tmp_path: Path) -> None:
    status, output = job(tmp_path, "killed", "ray", "torch")
    assert status == 1 and _OUTDATED not in output, output


@pytest.mark.patch("ray-2")
@pytest.mark.needs("ray")
def test_an_elastic_job_of_ray_goes_on_without_a_killed_worker(tmp_path: Path) -> None:
    _goes_on("ray", tmp_path)


@pytest.mark.needs("pyspark", "java")
def test_an_elastic_job_of_spark_goes_on_without_a_killed_worker(tmp_path: Path) -> None:
    _goes_on("spark", tmp_path)


def _goes_on(engine: str, tmp_path: Path) -> None:
    status, output = job(tmp_path, "elastic", engine, "torch")
    assert status == 0, output
    ranks = result(output)
    assert "Rank 1 died: process" in output
    assert len(ranks) >= 2 and all(one["size"] == len(ranks) and one["off"] < 1e-6 for one in ranks), ranks
    assert not any(one["exposed"] for one in ranks)


@pytest.mark.parametrize("engine", EVERY)
def test_the_script_that_paceline_template_writes_learns_digits(engine: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(engines.script(engine))
    status, output = run([sys.executable, "train.py", "--workers", "2", "--epochs", "5"], tmp_path)
    assert status == 0, output
    accuracies = [line.rpartition(" ")[2] for line in output.splitlines() if "accuracy" in line]
    assert len(accuracies) == 2 and min(map(float, accuracies)) > 0.8, output


def test_the_page_about_engines_has_the_scripts() -> None:
    page = (ROOT / "docs" / "guides" / "ray_and_spark.md").read_text()
    for engine in engines.ENGINES:
        assert engines.script(engine) in page
