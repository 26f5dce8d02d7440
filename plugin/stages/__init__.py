"""Pipeline parallelism: schedules of stages, the weights that passes use, and their costs: docs/methods/stages.md.

This package has numbers and names only and is independent of frameworks; execution/ runs a stage.
"""
