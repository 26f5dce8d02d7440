"""Pipeline parallelism: a model is cut into stages, one per rank, that a schedule drives (paceline.stages)."""
