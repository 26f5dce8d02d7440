"""Whether training with gradients in fewer bytes ends where training without codec does.

examples/benchmarks/codecs_torch.py trains; each model has one world of ranks, which makes its runs one after another.
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from paceline.errors import UserError
from paceline.launch import runs
from paceline.launch.ranks import run_python

SCRIPT = "paceline.examples.benchmarks.codecs_torch"
MODELS = ("digits", "uneven", "characters")
EXACT, PLAIN = "none", "_plain"  # a coding: a codec, and behind it that error feedback is left out
CODINGS = (EXACT, "bf16", "q8", "q8_plain")
VALUES = ("loss", "training_loss", "accuracy")

Result = dict[str, Any]  # what the script says of one run


def compare(
    model: str,
    codings: Sequence[str],
    seeds: int,
    ranks: int,
    collective: str,
    steps: int | None,
    progress: Callable[[str], None],
    limit_s: float,
) -> dict[str, Any]:
    """Train `model` with each coding and with seeds 0 to `seeds` - 1; all else is the same. See `summary`.

    Tensors of every size are encoded, and all codings travel by the same `collective`. `progress` gets a line about
    every run that has ended. Raises UserError with the ranks' last words if they fail or take longer than `limit_s`,
    and if the ranks' models are not equal at the end of a run.
    """
    results: list[Result] = []

    def on_line(line: str) -> None:
        result = runs.result_in(line)
        if result is not None:
            results.append(result)
            progress(f"{model}, seed {result['seed']}, {result['coding']}: loss {result['loss']:.5f}")

    script = importlib.util.find_spec(SCRIPT)
    assert script is not None and script.origin is not None
    words = [script.origin, "--model", model, "--codings", ",".join(codings), "--seeds", str(seeds)]
    words += [] if steps is None else ["--steps", str(steps)]
    environ = runs.environment(exchange="sync", collective=collective, codec=EXACT, codec_least_bytes=0)
    run_python(words, ranks, environ, limit_s, on_line)
    if len(results) != seeds * len(codings):
        raise UserError(
            f"{len(results)} of {seeds * len(codings)} runs of {model} said how they ended.", "Report this as a defect."
        )
    return {"model": model, "ranks": ranks, "collective": collective, **summary(results)}


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """{"steps", "seeds", "codings": by name {value of VALUES: {"mean", "sd", "values": by seed, "from_none_sd",
    "paired": {"mean", "sd"}}}} of all runs of one model.

    `from_none_sd`: how far the mean is from that without codec, in standard deviations over the seeds. `paired`: the
    difference to the run without codec of the same seed, which began with the same weights and saw the same batches.
    Both are None where that was not asked for. Raises UserError if the ranks' models differ.
    """
    by_coding: dict[str, list[Result]] = {}
    for result in sorted(results, key=lambda one: one["seed"]):
        if not result["equal"]:
            raise UserError(
                f"{result['coding']}, seed {result['seed']}: the replicas on the ranks are not equal.",
                "Report this as a defect.",
            )
        by_coding.setdefault(result["coding"], []).append(result)
    found = {
        coding: {name: dict(_figures(name, those, by_coding.get(EXACT))) for name in VALUES}
        for coding, those in by_coding.items()
    }
    return {"steps": results[0]["steps"], "seeds": len({one["seed"] for one in results}), "codings": found}


def _figures(name: str, those: Sequence[Result], exact: Sequence[Result] | None) -> Iterator[tuple[str, Any]]:
    values = [one[name] for one in those]
    yield from (("mean", statistics.mean(values)), ("sd", runs.spread(values)), ("values", values))
    base = None if exact is None or exact is those else [one[name] for one in exact]
    yield "from_none_sd", None if base is None else runs.apart(values, base)
    differences = None if base is None else [one - other for one, other in zip(values, base, strict=True)]
    yield (
        "paired",
        differences and {"mean": statistics.mean(differences), "sd": runs.spread(differences)},
    )
