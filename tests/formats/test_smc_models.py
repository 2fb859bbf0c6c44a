"""The models of `python -m benchmarks smc` have the published sizes, and Storm's value."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from rpl_agent.formats import prism

FOLDER = Path(__file__).parents[2] / "benchmarks" / "smc_models"
#: states, choices and transitions of the published files: PRISM's examples, and the LUIAARD collection
PUBLISHED = {
    "aircraft": (46, 138, 406), "betting": (300, 901, 1502), "chain": (31, 93, 186), "consensus": (272, 400, 492),
    "csma": (1038, 1054, 1282), "grid": (100, 374, 1450), "leader": (364, 573, 654), "loop": (28, 32, 41),
    "philosophers": (956, 2694, 3048),
}  # fmt: skip
#: of those that take longer to read: states and choices
LARGE = {"firewire": (14789, 16221), "wlan": (6063, 8129), "zeroconf": (670, 827)}


def test_every_model_is_known_here():
    assert {path.stem for path in FOLDER.glob("*.prism")} == set(PUBLISHED) | set(LARGE)


@pytest.mark.parametrize("name", [*PUBLISHED, *LARGE])
def test_sizes_are_the_published_ones(name):
    pmdp = prism.load(FOLDER / f"{name}.prism").pmdp
    found = (pmdp.num_states, pmdp.num_rows, pmdp.num_transitions)
    assert found[: len(LARGE.get(name, found))] == (LARGE.get(name) or PUBLISHED[name])


@pytest.mark.skipif(importlib.util.find_spec("stormpy") is None, reason="the peer stormpy is not installed")
@pytest.mark.parametrize("name", ["aircraft", "betting", "consensus", "csma", "leader", "loop", "philosophers"])
def test_storm_gives_the_same_value(name):
    from benchmarks.bench_smc import property_of, storm_value

    text, constants = property_of(FOLDER / f"{name}.prism")
    found = prism.answer(prism.load(FOLDER / f"{name}.prism"), text)[0]
    value = storm_value(FOLDER / f"{name}.prism", text, constants)
    slack = 1e-5 * max(1.0, abs(value))  # of Storm's iteration
    assert found.lower - slack <= value <= found.upper + slack and not found.problems
