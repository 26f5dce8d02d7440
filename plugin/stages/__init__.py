"""Pipeline parallelism: which stage does what when, at which weights, and what that costs: docs/stages.md.

Numbers and names only: nothing here knows a framework or Horovod.
"""
