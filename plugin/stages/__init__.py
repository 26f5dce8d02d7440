"""Pipeline parallelism: which stage does what when, at which weights, and what that costs: docs/methods/stages.md.

Numbers and names only, but for execution/, where a stage is at work: nothing here knows a framework.
"""
