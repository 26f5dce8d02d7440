"""Cost of late gradients in pipeline stages, and of the remedies: the same training with several settings.

    horovodrun -np 4 python examples/benchmarks/stages_torch.py --seeds 3,4,5 --steps 600 | tee losses.txt

Trains the model of characters_stages_torch.py once for each setting and seed. First weights, batches, steps and
learning rates are the same. The same ranks make all runs, one after another. A line RESULT for each run has the losses
of all mini-batches and on held-out text; stages_report.py draws them.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import paceline.torch as hvd
from paceline.examples import characters_stages_torch as example
from paceline.stages.corrections import CORRECTION, least_microbatches
from paceline.stages.costs import costs
from paceline.stages.schedules import make

MOMENTUM, LESS_MOMENTUM = 0.9, 0.5  # Nesterov's, on the last stage
ANNEALED = 0.25  # share of the steps in which T1 lowers learning rates
WARM_UP = 0.1  # share of the steps that T3 makes synchronous
CUT = 4  # micro-batches of the settings that cut a batch into several


def settings(stages: int, steps: int, microbatches: int) -> dict[str, dict[str, Any]]:
    """Settings by name: options of the example that differ from a plain run of PipeMare.

    `gpipe_short` has as many steps as GPipe with CUT micro-batches makes in the time of `t1t2t3` with its warm-up, if
    waiting between stages is the only loss. `bounded` counts micro-batches as PipeMare's paper does, `bounded_ours` as
    our schedules do.
    """
    t1 = {"annealing_steps": round(ANNEALED * steps)}
    t2 = {"correction": CORRECTION}
    t3 = {"warmup_steps": round(WARM_UP * steps)}
    time = t3["warmup_steps"] / costs(make("1f1b", stages, microbatches)).utilisation + steps - t3["warmup_steps"]
    short = round(time * costs(make("gpipe", stages, CUT)).utilisation)
    enough, enough_for_ours = (-(-one // microbatches) for one in (least_microbatches(stages), max(1, stages - 1)))
    return {
        "gpipe": {"schedule": "gpipe"},
        "gpipe_short": {"schedule": "gpipe", "steps": short},
        "t1t2t3": {**t1, **t2, **t3},
        "t2t3": {**t2, **t3},
        "pipemare": {},
        "nesterov": {"nesterov": MOMENTUM},
        "nesterov_less": {"nesterov": LESS_MOMENTUM},
        "bounded": {"update_every": enough},
        "bounded_ours": {"update_every": enough_for_ours},
        "pipemare_cut": {"microbatches": CUT},
    }


def run(chosen: argparse.Namespace, setting: str) -> dict[str, Any] | None:
    """Run one training. Returns on rank 0 {"setting", "seed", "options", "losses", "loss", "accuracy"}, else None."""
    options = settings(hvd.size(), chosen.steps, chosen.microbatches)[setting]
    one = argparse.Namespace(**{**vars(chosen), **options})
    pipeline = example.pipeline_of(one)
    losses = example.train(pipeline, one)
    whole = pipeline.consolidate()
    pipeline.close()
    if whole is None:
        return None
    loss, accuracy = example.test(whole)
    return {
        "setting": setting,
        "seed": one.seed,
        "stages": pipeline.stages,
        "steps": one.steps,
        "microbatches": one.microbatches,
        "schedule": one.schedule,
        "options": options,
        "losses": [round(each, 4) for each in losses],
        "loss": loss,
        "accuracy": accuracy,
    }


def main() -> None:
    """Train with every setting and seed, and print a line for each."""
    parser = example.arguments_of("Compare schedules and corrections of pipeline stages on one model.")
    parser.add_argument("--settings", default=",".join(settings(4, 1, 1)), help="default: %(default)s")
    parser.add_argument("--seeds", default="0,1,2", help="default: %(default)s")
    parser.set_defaults(steps=600, learning_rate=4e-3)
    chosen = parser.parse_args()

    hvd.init()
    for seed in map(int, chosen.seeds.split(",")):
        for name in chosen.settings.split(","):
            chosen.seed = seed
            result = run(chosen, name)
            if result is not None:
                print("RESULT " + json.dumps(result), flush=True)
    hvd.barrier()  # rank 0 is the last that needs the others
    hvd.shutdown()


if __name__ == "__main__":
    main()
