"""`rpl worlds`: the registered ids, with sizes, parameters and objective."""

from __future__ import annotations

import argparse
from typing import Any

from rpl_agent.cli.common import add_json, emit
from rpl_agent.errors import ModelError


def register(commands: Any) -> None:
    worlds = commands.add_parser("worlds", help="the registered worlds: sizes, parameters, objective")
    worlds.add_argument("pattern", nargs="?", default="", metavar="TEXT", help="only ids that contain TEXT")
    add_json(worlds)
    worlds.set_defaults(run=run_worlds)


def describe() -> list[dict[str, Any]]:
    """One entry per instance. Parameters and objective are the family's, read from its smallest instance."""
    import rpl_envs

    families: dict[str, tuple[list[str], str]] = {}
    found = []
    for name, instance in rpl_envs.INSTANCES.items():
        if instance.family not in families:  # instances stand in order of size
            smallest = rpl_envs.benchmark(name)
            families[instance.family] = (list(smallest.pmdp.table.parameters), smallest.objective.describe())
        parameters, objective = families[instance.family]
        states, transitions, expressions = instance.counts or (None, None, None)
        found.append(
            {
                "id": instance.id, "states": states, "transitions": transitions, "expressions": expressions,
                "parameters": parameters, "objective": objective, "episode_steps": instance.episode + 1,
            }
        )  # fmt: skip
    return found


def run_worlds(arguments: argparse.Namespace) -> int:
    worlds = [world for world in describe() if arguments.pattern.lower() in str(world["id"]).lower()]
    if not worlds:
        raise ModelError(f"no world's id contains {arguments.pattern!r}; rpl worlds lists them all")
    if arguments.json:
        emit(arguments, {"worlds": worlds}, "worlds")
        return 0
    _print(worlds)
    return 0


def _print(worlds: list[dict[str, Any]]) -> None:
    """A heading per family, because what is sought and what is unknown are the same in all its sizes."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    headings = [f"{world['objective']}   unknown: {', '.join(world['parameters'])}" for world in worlds]
    for heading in dict.fromkeys(headings):
        console.print(heading, style="bold", markup=False)
        table = Table("id", box=None, padding=(0, 2, 0, 0))
        for name in ("states", "transitions", "expressions", "steps"):
            table.add_column(name, justify="right")
        for world in (world for world, own in zip(worlds, headings) if own == heading):
            sizes = [world[name] for name in ("states", "transitions", "expressions", "episode_steps")]
            table.add_row(world["id"], *("–" if size is None else f"{size:,}" for size in sizes))
        console.print(table, "")
    console.print("Episodes end after the number of steps shown. Sizes marked –: rpl info ID. Start with: rpl train ID")
