"""The independent peer: Storm builds the same files to the same models and values, and reads our exports."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from rpl_agent.core.model import Nature
from rpl_agent.core.relaxations.interval import Intervals, Point
from rpl_agent.core.solver import solve
from rpl_agent.formats import prism
from rpl_agent.formats.export import write_uncertain
from tests.reference.domains import points_of

stormpy = pytest.importorskip("stormpy", reason="the peer stormpy is not installed (extra 'peers')")

MODELS = Path(__file__).parents[2] / "examples" / "models"
TRUTH = {
    "aircraft": (0.4, 0.2, 0.15),
    "betting": (0.55,),
    "engagement": (0.3, 0.2, 0.1, 0.25),
    "mars_rover": (0.4, 0.2, 0.15, 0.14),
    "glider": (0.3, 0.7),
    "parallel_betting": (0.55, 0.53),
    "maintenance": (0.4, 0.02),
}


def storm_program(file: str, theta) -> tuple:
    """Storm's program of the file at parameters, its properties, and the names of the parameters."""
    program = stormpy.parse_prism_program(str(MODELS / f"{file}.prism"))
    text = (MODELS / f"{file}.props").read_text().strip()
    properties = stormpy.parse_properties(text, program)
    names = [c.name for c in program.constants if not c.defined]
    values = ",".join(f"{name}={value!r}" for name, value in zip(names, theta, strict=True))
    program, properties = stormpy.instantiate_constants(program, values, properties)
    return program, properties, names


@pytest.mark.parametrize(
    "file", [pytest.param(f, marks=pytest.mark.nightly if f == "mars_rover" else ()) for f in sorted(TRUTH)]
)  # the rover's is the longest
def test_storm_builds_the_same_model(file, sized):
    model = prism.load(MODELS / f"{file}.prism")
    pmdp, objective = model.objective()
    truth = np.array(TRUTH[file])
    # halfway to the truth: inside, away from zero probabilities; three digits are exact for both sides
    points = [truth, *np.round((points_of(pmdp.domain, np.random.default_rng(7), sized(1, 2)) + truth) / 2, 3)]
    for k, theta in enumerate(points):
        program, properties, names = storm_program(file, theta.tolist())
        assert tuple(names) == pmdp.table.parameters
        if k == 0:
            # Storm's numbers must be exact for the counts: with doubles a current of 0 becomes one of 1e-17 (glider)
            exact = stormpy.build_model[stormpy.Rational](program, properties)
            assert exact.nr_states == pmdp.num_states
            assert exact.nr_choices == pmdp.num_rows
            assert exact.nr_transitions == pmdp.num_transitions
        storm = stormpy.build_model[float](program, properties)
        value = stormpy.model_checking(storm, properties[0]).get_value(storm.initial_states[0])
        ours = solve(Point(pmdp.instantiate(theta)), objective, Nature.COOPERATIVE, precision=1e-8)
        assert value == pytest.approx((ours.lower + ours.upper) / 2, rel=1e-5, abs=1e-7)


def test_storm_gives_the_same_value_to_a_dtmc(tmp_path):
    text = """dtmc
    const double p;
    module m x : [0..3]; [] x=0 -> p:(x'=1) + 1-p:(x'=2); [] x=0 -> (x'=3); [] x>0 -> true; endmodule
    label "one" = x=1;
    """
    model = prism.loads(text)
    (tmp_path / "d.prism").write_text(text)
    program = stormpy.parse_prism_program(str(tmp_path / "d.prism"))
    properties = stormpy.parse_properties('P=? [F "one"]', program)
    program, properties = stormpy.instantiate_constants(program, {"p": 0.3}, properties)
    storm = stormpy.build_model[float](program, properties)
    ours = solve(Point(model.pmdp.instantiate([0.3])), model.objective('P=? [F "one"]')[1], Nature.COOPERATIVE)
    value = stormpy.model_checking(storm, properties[0]).get_value(storm.initial_states[0])
    assert value == pytest.approx(ours.lower, abs=1e-9)
    assert value == pytest.approx(0.15, abs=1e-9)


def read_back(path: Path):
    if path.suffix == ".umb":
        return stormpy.build_model_from_umb(str(path))
    return stormpy.build_model_from_drn[stormpy.Interval](str(path))


@pytest.mark.parametrize(
    "file, ending",
    [
        *product(["glider", "maintenance"], [".drn", ".umb"]), ("aircraft", ".drn"),
        pytest.param("aircraft", ".umb", marks=pytest.mark.nightly),
    ],
)  # fmt: skip
def test_storm_reads_the_uncertain_model_with_the_same_robust_value(file, ending, tmp_path):
    model = prism.load(MODELS / f"{file}.prism")
    pmdp, objective = model.objective()
    value = pmdp.table.at(np.array(TRUTH[file]))
    # away from 0, which Storm refuses as a lower bound
    lower = np.where(pmdp.table.is_constant, value, np.clip(value - 0.02, 1e-4, 1))
    upper = np.where(pmdp.table.is_constant, value, np.clip(value + 0.02, 1e-4, 1))
    path, properties = write_uncertain(tmp_path / f"uncertain{ending}", pmdp, lower, upper, objective)
    storm = read_back(path)
    assert (storm.nr_states, storm.nr_choices, storm.nr_transitions) == (
        pmdp.num_states,
        pmdp.num_rows,
        pmdp.num_transitions,
    )
    formula = stormpy.parse_properties(properties.read_text())[0]
    for nature, mode in (
        (Nature.ADVERSARIAL, stormpy.UncertaintyResolutionMode.ROBUST),
        (Nature.COOPERATIVE, stormpy.UncertaintyResolutionMode.COOPERATIVE),
    ):
        ours = solve(Intervals(pmdp, lower, upper), objective, nature, precision=1e-8)
        found = stormpy.model_checking(storm, formula, uncertainty_resolution_mode=mode).get_value(
            storm.initial_states[0]
        )
        assert found == pytest.approx((ours.lower + ours.upper) / 2, rel=1e-4)


def test_storm_reads_point_models_with_the_same_value(tmp_path):
    model = prism.load(MODELS / "glider.prism")
    pmdp, objective = model.objective()
    value = pmdp.table.at(np.array(TRUTH["glider"]))
    for ending in (".drn", ".umb"):
        path, properties = write_uncertain(tmp_path / f"point{ending}", pmdp, value, value, objective)
        storm = stormpy.build_model_from_drn(str(path)) if ending == ".drn" else stormpy.build_model_from_umb(str(path))
        formula = stormpy.parse_properties(properties.read_text())[0]
        found = stormpy.model_checking(storm, formula).get_value(storm.initial_states[0])
        assert found == pytest.approx(23.165, abs=1e-2)
        assert storm.labeling.contains_label("goal")
