"""What a benchmark is, and the list of instances that the paper reports.

`benchmark("Aircraft-20x10")`, `benchmark("rpl/Aircraft-20x10-v0")` and `benchmark("Aircraft", X=20, Y=10)` are the
same object: models are built once per process.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Objective, ParametricMDP
from rpl_envs.rendering.scene import Renderer, StateRenderer

#: Models kept per process: the paper's instances take about 1 GB together, the largest of them 400 MB.
CACHED_MODELS = 48


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A world: its known structure, what is wanted, and (for the simulator alone) its true parameters."""

    pmdp: ParametricMDP
    objective: Objective
    theta: tuple[float, ...] = field(repr=False)
    max_episode_steps: int
    renderer: Renderer = field(default_factory=StateRenderer, repr=False)


@dataclass(frozen=True)
class Instance:
    """One model of the paper: how to make it, and the sizes that were reported for it."""

    name: str  # "Aircraft-20x10"
    family: str  # "Aircraft"
    size: Mapping[str, Any]
    label: str  # how the paper writes the size
    episode: int  # episode length; the paper cuts after one more step
    counts: tuple[int, int, int] | None = None  # |S|, |T|, |Λ| where the paper gives them
    value: float | None = None  # V* where it is known
    online: bool = False  # one of the six learning instances

    @property
    def id(self) -> str:
        return f"rpl/{self.name}-v0"


def _instance(
    family: str,
    sizes: str,
    label: str,
    episode: int,
    counts: tuple[int, int, int] | None = None,
    value: float | None = None,
    online: bool = False,
    **size: Any,
) -> Instance:
    return Instance(f"{family}-{sizes}", family, size, label, episode, counts, value, online)


#: Every instance by name. Names say what a model is; two labels of the paper do not (Betting 150, Glider 106x99).
INSTANCES: dict[str, Instance] = {
    instance.name: instance
    for instance in (
        _instance("Aircraft", "20x10", "(20, 10)", 20, (1833, 23743, 271), 0.288353, True, X=20, Y=10),
        _instance("Aircraft", "50x10", "(50, 10)", 50, (5463, 73033, 721), X=50, Y=10),
        _instance("Aircraft", "100x20", "(100, 20)", 100, (39028, 551598, 1441), X=100, Y=20),
        _instance("Aircraft", "200x40", "(200, 40)", 200, (294458, 4285228, 2881), X=200, Y=40),
        _instance("Betting", "25", "(25)", 25, (3625, 27703, 1283), 19.0429, True, n=25),
        _instance("Betting", "50", "(50)", 50, (13500, 111678, 2613), n=50),
        _instance("Betting", "100", "(100)", 100, (52000, 448378, 5283), n=100),
        _instance("Betting", "135", "(150) in the size and ellipsoid tables", 135, (93825, 817943, 7147), n=135),
        _instance("Betting", "140", "(150) in the main table", 140, n=140),
        _instance("Engagement", "50", "(50)", 50, (994, 2962, 61), 42.3516, True, L=50),
        _instance("Engagement", "100", "(100)", 150, (1994, 5962, 61), 42.442, L=100),
        _instance("Engagement", "300", "(300)", 300, (5994, 17962, 61), L=300),
        _instance("Engagement", "1000", "(1000)", 1000, (19994, 59962, 61), L=1000),
        _instance("MarsRover", "10x10", "(10, 10)", 50, (5139, 24515, 145), 0.858075, True, X=10, Y=10),
        _instance("MarsRover", "50x50", "(50, 50)", 350, (191868, 1003861, 643), X=50, Y=50),
        _instance("MarsRover", "75x75", "(75, 75)", 450, (550447, 2973287, 943), X=75, Y=75),
        _instance("MarsRover", "125x125", "(125, 125)", 450, (1749083, 9591771, 1543), X=125, Y=125),
        _instance("Glider", "11x9", "(11, 9)", 100, (99, 1317, 225), 23.165, True, w=11, h=9),
        _instance("Glider", "21x17", "(21, 17)", 100, (357, 5209, 777), 42.655, w=21, h=17),
        _instance("Glider", "51x47", "(51, 47) in the size and ellipsoid tables", 400, (2397, 37066, 4977), w=51, h=47),
        _instance("Glider", "51x47-region", "(51, 47) in the main table", 400, w=51, h=47, goal=[30, 30], radius=10),
        _instance("Glider", "69x67", "(106, 99) in the main table", 600, w=69, h=67, goal=[35, 35], radius=10),
        _instance(
            "Glider",
            "71x67",
            "(106, 99) in the size table",
            600,
            (4757, 74299, 9768),
            w=71,
            h=67,
            goal=[51, 50],
            radius=10,
        ),
        _instance("ParallelBetting", "5", "(5)", 5, (3051, 15543, 477), 26.605, n=5),
        _instance("ParallelBetting", "6", "(6)", 6, (5046, 30746, 597), 27.737, True, n=6),
        _instance("ParallelBetting", "10", "(10)", 10, (21006, 187730, 1077), n=10),
        _instance("ParallelBetting", "20", "(20)", 20, (151556, 1846840, 185209), n=20),
    )
}

#: Family -> the function that builds it, as "module:function" so that importing one builds nothing.
FAMILIES: dict[str, str] = {
    "Aircraft": "rpl_envs.worlds.aircraft:aircraft",
    "Betting": "rpl_envs.worlds.betting:betting",
    "Engagement": "rpl_envs.worlds.engagement:engagement",
    "MarsRover": "rpl_envs.worlds.mars_rover:mars_rover",
    "Glider": "rpl_envs.worlds.glider:glider",
    "ParallelBetting": "rpl_envs.worlds.parallel_betting:parallel_betting",
}


def builder(family: str) -> Callable[..., Benchmark]:
    """The function that builds a family; its docstring describes the world."""
    if family not in FAMILIES:
        raise ModelError(f"no benchmark {family!r}; there are {sorted(FAMILIES)} and the instances {sorted(INSTANCES)}")
    module, function = FAMILIES[family].split(":")
    return getattr(import_module(module), function)


def benchmark(name: str, **size: Any) -> Benchmark:
    """A benchmark by id, instance name or family name with size keywords; built once per process."""
    name = re.sub(r"^(rpl_envs:)?(rpl/)?|-v\d+$", "", name)
    if name in INSTANCES:
        instance = INSTANCES[name]
        name, size = instance.family, {**instance.size, **size}
    build = builder(name)
    signature = inspect.signature(build)
    unknown = set(size) - set(signature.parameters)
    if unknown:
        raise ModelError(f"{name} has no size keyword {sorted(unknown)}; it takes {list(signature.parameters)}")
    bound = signature.bind(**size)
    bound.apply_defaults()
    sizes = bound.arguments.items()
    return _cached(name, tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in sizes))  # JSON has no tuples


@lru_cache(maxsize=CACHED_MODELS)
def _cached(family: str, size: tuple[tuple[str, Any], ...]) -> Benchmark:
    return builder(family)(**dict(size))


def check_size(name: str, **limits: tuple[Any, int]) -> None:
    """Raise ModelError unless every keyword is an integer of at least its limit."""
    for keyword, (value, least) in limits.items():
        if isinstance(value, bool) or not hasattr(value, "__index__") or value < least:
            raise ModelError(f"{name}: {keyword} = {value!r} must be an integer of at least {least}")
