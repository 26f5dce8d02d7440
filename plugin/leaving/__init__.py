"""Orderly exit of a rank: it takes part in the others' rounds until all ranks have finished."""
