"""Worlds of the same size with different environments, such as two builds of Horovod, in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from integration_tests.support.ranks import World

T = TypeVar("T")


def in_turn(
    environments: Mapping[str, Mapping[str, str]], ranks: int, run: Callable[[World], T], turns: int
) -> dict[str, list[T]]:
    """Results of `run` for the world of each environment, by its name, one value per turn after one warm-up turn.

    The machine's speed drifts within seconds, so turns should be short: all ranks stay alive, and worlds that wait for
    their turn are stopped.
    """
    worlds = {name: World(ranks, env) for name, env in environments.items()}
    found: dict[str, list[T]] = {name: [] for name in worlds}
    try:
        for world in worlds.values():
            world.pause()
        for turn in range(-1, turns):
            for name, world in worlds.items():
                world.resume()
                value = run(world)
                world.pause()
                if turn >= 0:
                    found[name].append(value)
    finally:
        for world in worlds.values():
            world.resume()
            world.end()
    return found
