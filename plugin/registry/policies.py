"""Registry of built-in fusion policies; plugin/core/fusion/planner.cc makes their plans."""

from __future__ import annotations

THRESHOLD = "threshold"
OPTIMAL = "optimal"
# Name -> summary for tables.
BUILT_IN: dict[str, str] = {
    THRESHOLD: "Horovod's own merging of what happens to be ready",
    "none": "every tensor alone",
    "single": "all tensors in one message",
    "mgwfbp": "the greedy rule of MG-WFBP",
    OPTIMAL: "the plan that ends first, by dynamic programming",
}
# Horovod switches that conflict with plans -> (reason, remedy).
EXCLUDING = {
    "HOROVOD_AUTOTUNE": (
        "autotuning changes what is merged while a plan says it",
        "Leave one of them out: horovodrun without --autotune, or fusion=threshold.",
    ),
    "HOROVOD_DISABLE_GROUP_FUSION": (
        "it says that only tensors of one grouped operation share a message, a plan says otherwise",
        "Leave one of them out: horovodrun without --disable-group-fusion, or fusion=threshold.",
    ),
}
# Policies with a fixed plan, chosen for how they merge rather than for speed.
FIXED = ("none", "single")
