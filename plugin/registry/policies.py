"""The fusion policies that are built in; plugin/core/fusion/planner.cc makes their plans."""

from __future__ import annotations

THRESHOLD = "threshold"
OPTIMAL = "optimal"
# Name -> what it does, for tables.
BUILT_IN: dict[str, str] = {
    THRESHOLD: "Horovod's own merging of what happens to be ready",
    "none": "every tensor alone",
    "single": "all tensors in one message",
    "mgwfbp": "the greedy rule of MG-WFBP",
    OPTIMAL: "the plan that ends first, by dynamic programming",
}
# Those that are asked for because of what they merge, not because that is faster.
FIXED = ("none", "single")
