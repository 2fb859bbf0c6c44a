"""Several objectives at known parameters: our answers beside Storm's, on models of our own."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rpl_agent import Objective, curve
from rpl_agent.cli import main
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.formats import prism
from tests.claims.test_multi_known import random_model

stormpy = pytest.importorskip("stormpy", reason="the peer stormpy is not installed (extra 'peers')")

#: Storm's default precision for multi-objective properties.
STORM = 2e-4

WALK = """mdp
module walk
  s : [0..3] init 0;
  [safe] s=0 -> 0.5:(s'=1) + 0.5:(s'=2);
  [bold] s=0 -> 0.9:(s'=1) + 0.1:(s'=3);
  [stay] s>0 -> true;
endmodule
label "goal" = s=1;
label "bad" = s=3;
"""

#: five roads, each fast (an accident with .04) or slow (with .004); the play ends at home or in the accident
COURIER = """mdp
module courier
  s : [0..7] init 0;
  [fast] s<5 -> 0.96:(s'=s+1) + 0.04:(s'=6);
  [slow] s<5 -> 0.996:(s'=s+1) + 0.004:(s'=6);
  [over] s=5 | s=6 -> (s'=7);
  [stay] s=7 -> true;
endmodule
label "done" = s>=5;
label "bad" = s=6;
rewards "hours"
  [fast] s<5 : 1;
  [slow] s<5 : 3;
endrewards
"""

#: a ledge of six fields: run ahead two at a time, walk, or wait for the wind; slips lead back or down
LEDGE = """mdp
module ledge
  x : [0..7] init 0;
  wind : [0..1] init 1;
  [run]  x<6 & wind=1 -> 0.7:(x'=min(x+2,6)) & (wind'=0) + 0.2:(x'=max(x-1,0)) + 0.1:(x'=7);
  [run]  x<6 & wind=0 -> 0.9:(x'=min(x+2,6)) + 0.08:(wind'=1) + 0.02:(x'=7);
  [walk] x<6 -> 0.8:(x'=x+1) + 0.19:(wind'=1-wind) + 0.01:(x'=7);
  [wait] x<6 & wind=1 -> 0.5:(wind'=0) + 0.5:true;
  [stay] x>=6 -> true;
endmodule
label "done" = x>=6;
label "bad" = x=7;
rewards "hours"
  [run] true : 1;
  [walk] true : 1;
  [wait] true : 1;
endrewards
"""

CASES = [
    (WALK, 'Pmax=? [ F "goal" ]', (0.02, 0.05, 0.08)),
    (COURIER, 'R{"hours"}min=? [ F "done" ]', (0.05, 0.1, 0.15)),
    (LEDGE, 'R{"hours"}min=? [ F "done" ]', (0.07, 0.08, 0.1)),
]


def storm(path, text):
    program = stormpy.parse_prism_program(str(path))
    properties = stormpy.parse_properties(text, program)
    model = stormpy.build_model[float](program, properties)
    return stormpy.model_checking(model, properties[0]), model.initial_states[0]


def ours(path, text, capsys):
    assert main(["solve", str(path), "--property", text, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("source, goal, thresholds", CASES, ids=["walk", "courier", "ledge"])
def test_the_fronts_coincide(source, goal, thresholds, tmp_path, capsys):
    path = tmp_path / "model.prism"
    path.write_text(source)
    for threshold in thresholds:
        text = f'multi({goal}, P<={threshold} [ F "bad" ])'
        found = ours(path, text, capsys)
        result, state = storm(path, text)
        value = result.get_value(state)
        assert found["keeps_limits"] and found["upper"] - found["lower"] <= 1e-4 * abs(found["upper"])
        assert found["lower"] - STORM * abs(value) <= value <= found["upper"] + STORM * abs(value), threshold
        if threshold != thresholds[1]:  # a question is one of values, and one of each kind is enough
            continue
        sign, limit = (">=", 0.99) if "max" in goal else ("<=", 1.01)
        head = goal.partition("max" if "max" in goal else "min")[0]
        for factor, said in ((limit, "yes"), (2.0 - limit, "no")):
            asked = f'multi({head}{sign}{factor * value} {goal.partition("=? ")[2]}, P<={threshold} [ F "bad" ])'
            assert ours(path, asked, capsys)["answer"] == said
            result, state = storm(path, asked)
            assert bool(result.forall_true()) is (said == "yes")


@pytest.mark.parametrize("seed, states", [(11, 6), (12, 7), (13, 8), (14, 40), (15, 200)])
def test_random_models_have_storms_values(seed, states, tmp_path, capsys):
    path = tmp_path / "model.prism"
    path.write_text(random_model(seed, states))
    for limit in (0.15, 0.55):
        for goal in ('Pmin=? [ F "t" ]', 'R{"r"}min=? [ C ]'):
            text = f'multi({goal}, P>={limit} [ F "u" ])'
            found, (result, state) = ours(path, text, capsys), storm(path, text)
            if not found["keeps_limits"]:
                assert "no policy keeps" in found["limits"] and not result.forall_true()
                continue
            value = result.get_value(state)
            slack = STORM * max(1.0, abs(value))
            assert found["lower"] - slack <= value <= found["upper"] + slack, (text, value)
            assert found["upper"] - found["lower"] <= 1e-6 * max(1.0, found["upper"])


def test_storm_and_we_agree_on_what_nobody_keeps(tmp_path, capsys):
    path = tmp_path / "model.prism"
    path.write_text(LEDGE)
    text = 'multi(R{"hours"}min=? [ F "done" ], P<=0.06 [ F "bad" ])'
    found = ours(path, text, capsys)
    assert not found["keeps_limits"] and "no policy keeps" in found["limits"]
    assert not storm(path, text)[0].forall_true()


def test_no_point_of_storms_front_is_beyond_ours(tmp_path, capsys):
    """Every vertex of what Storm achieves satisfies all of our half planes."""
    path = tmp_path / "model.prism"
    path.write_text(WALK)
    text = 'multi(Pmax=? [ F "goal" ], Pmin=? [ F "bad" ])'
    found = ours(path, text, capsys)
    result, _ = storm(path, text)
    vertices = [list(map(float, v)) for v in result.get_under_approximation().vertices]
    assert len(vertices) >= 2
    for won, bad in vertices:
        for plane in found["half_planes"]:
            one, other = plane["weights"]
            assert one * won - other * bad <= plane["most"] + STORM


#: the same ledge with two unknown chances
UNKNOWN_LEDGE = "mdp\nconst double fall;\nconst double gust;" + LEDGE.removeprefix("mdp").replace(
    "0.9:(x'=min(x+2,6)) + 0.08:(wind'=1) + 0.02:(x'=7)", "0.92-fall:(x'=min(x+2,6)) + 0.08:(wind'=1) + fall:(x'=7)"
).replace("0.8:(x'=x+1) + 0.19:(wind'=1-wind)", "0.99-gust:(x'=x+1) + gust:(wind'=1-wind)")


def test_certified_curves_become_storms_front_as_data_grow(tmp_path):
    """Half planes are beyond Storm's front and boxes of policies inside it, by less and less."""
    path, hours, bad = tmp_path / "ledge.prism", 'R{"hours"}min=? [ F "done" ]', 'Pmin=? [ F "bad" ]'
    path.write_text(LEDGE)
    result, _ = storm(path, f"multi({hours}, {bad})")
    front = np.array([list(map(float, v)) for v in result.get_under_approximation().vertices])
    path.write_text(UNKNOWN_LEDGE)
    pmdp, goal = prism.load(path, parameters={"fall": (0.0, 0.2), "gust": (0.0, 0.5)}).objective(hours)
    pair = [goal, Objective.parse("minimise probability of bad")]
    theta, off = np.array([{"fall": 0.02, "gust": 0.19}[name] for name in pmdp.table.parameters]), []
    for episodes in (100, 10_000, 1_000_000):
        found = curve(pmdp, uniform_counts(pmdp, pair[0], theta, episodes, 100, 0), pair, points=7)
        most = [max(-np.dot(plane.weights, point) for point in front) for plane in found.half_planes]
        best = [max(-np.dot(plane.weights, point.upper) for point in found.points) for plane in found.half_planes]
        size = [np.abs(plane.weights).max() for plane in found.half_planes]
        outside = [(plane.most - one) / s for plane, one, s in zip(found.half_planes, most, size)]
        inside = [(one - own) / s for one, own, s in zip(most, best, size)]
        assert min(outside) > -STORM * 10.0 and min(inside) > -STORM * 10.0
        off.append((max(outside), max(inside)))
    assert all(after < before for k in (0, 1) for before, after in zip([o[k] for o in off], [o[k] for o in off][1:]))
    assert max(off[-1]) < 0.05, off
