"""Unknown by default: commands, rows and constants of known models, and statistical model checking of them."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest

from rpl_agent import Nature, build, solve
from rpl_agent.cli import main
from rpl_agent.core.errors import ModelError
from rpl_agent.core.model.building.unknown import hide_parameters
from rpl_agent.core.regions.blocks import factorisation
from rpl_agent.core.relaxations.interval import Point
from rpl_agent.formats import prism

pytestmark = pytest.mark.short_runs

RING = """
mdp
const double lossy = 0.3;
const int N = 2;
module a
  x : [0..4] init 0;
  [] x=0 -> 0.5 : (x'=1) + 0.25 : (x'=2) + 0.25 : (x'=3);
  [] x=1 -> lossy : (x'=0) + 1-lossy : (x'=4);
  [] x=2 -> 1/(N+1) : (x'=0) + N/(N+1) : (x'=4);
  [go] x=3 -> 0.1 : (x'=4) + 0.9 : (x'=3);
  [] x=4 -> (x'=4);
endmodule
module b = a [x=y] endmodule
label "done" = x=4 & y=4;
label "early" = x=4 & y<4;
"""
REACH = 'Pmax=? [!"early" U "done"]'

BACKOFF = """
dtmc
module m
  n : [0..3] init 0;
  s : [0..1] init 0;
  [] s=0 & n<3 -> (n+1)/4 : (s'=1) + 1-(n+1)/4 : (n'=n+1);
  [] s=0 & n=3 -> 0.5 : (s'=1) + 0.5 : (n'=0);
  [] s=1 -> true;
endmodule
"""


def value(model, text):
    pmdp, objective = model.objective(text)
    theta = model.truth if model.truth is not None else np.zeros(0)
    found = solve(Point(pmdp.instantiate(theta)), objective, Nature.COOPERATIVE)
    return (found.lower + found.upper) / 2


@pytest.mark.parametrize("unknown", ["commands", "rows", ["lossy"]])
def test_the_files_numbers_are_the_truth(unknown):
    known, hidden = prism.loads(RING), prism.loads(RING, unknown=unknown)
    assert hidden.pmdp.num_parameters == len(hidden.truth) > 0
    assert value(hidden, REACH) == pytest.approx(value(known, REACH), abs=1e-6)
    assert hidden.pmdp.num_states == known.pmdp.num_states


def test_commands_are_simplices_and_renamed_modules_may_share_them():
    apart, tied = prism.loads(RING, unknown="commands"), prism.loads(RING, unknown="commands", tie_modules=True)
    assert apart.pmdp.num_parameters == 2 * tied.pmdp.num_parameters == 2 * (2 + 1 + 1 + 1)
    assert (apart.pmdp.domain.A.sum(axis=1) == 2).all() and len(apart.pmdp.domain.b) == 2
    # the synchronised commands of both modules multiply
    assert apart.pmdp.table.degree == 2 and tied.pmdp.table.degree == 2
    assert value(tied, REACH) == pytest.approx(value(prism.loads(RING), REACH), abs=1e-6)


def test_probabilities_that_depend_on_the_state_are_distributions_per_combination():
    model = prism.loads(BACKOFF, unknown="commands")
    # n = 0, 1, 2 of the first command and the second command; (n+1)/4 is 1 at n = 3, where the guard fails
    assert dict(zip(model.pmdp.table.parameters, model.truth)) == {
        "m_1_0_p1": 0.25, "m_1_1_p1": 0.5, "m_1_2_p1": 0.75, "m_2_p1": 0.5,
    }  # fmt: skip
    assert value(model, "P=? [F s=1]") == pytest.approx(1.0)


def test_rows_know_nothing_but_the_graph():
    known, rows = prism.loads(RING).pmdp, prism.loads(RING, unknown="rows").pmdp
    np.testing.assert_array_equal(known.successor, rows.successor)
    length = np.diff(rows.row_ptr)
    assert rows.num_parameters == (length - 1).sum()
    blocks = factorisation(rows)
    assert blocks.num_blocks == (length > 1).sum() and blocks.single.all()


@pytest.mark.parametrize(
    "unknown, tie, words",
    [
        (["nothing"], False, "no constant 'nothing'"), (["N"], False, "type double"), ("rows", True, "tied"),
        (["lossy"], True, "tied"),
    ],
)  # fmt: skip
def test_what_cannot_be_unknown_is_named(unknown, tie, words):
    with pytest.raises(prism.PrismError, match=words):
        prism.loads(RING, unknown=unknown, tie_modules=tie)


def test_other_probabilities_in_a_renamed_module_are_no_tie():
    text = RING.replace("[x=y]", "[x=y, lossy=other]").replace("const int", "const double other = 0.4;\nconst int")
    with pytest.raises(prism.PrismError, match="do not tie"):
        prism.loads(text, unknown="commands", tie_modules=True)


# ---------------------------------------------------------------------- Python
def walk():
    """Three cells on a ring, two biased coins alternating."""
    bias = {0: 0.3, 1: 0.6, 2: 0.3}
    return build(
        0, lambda s: {"go": {(s + 1) % 3: str(bias[s]), (s + 2) % 3: f"1-{bias[s]}"}}, domain=[],
        labels={"two": lambda s: s == 2},
    )  # fmt: skip


def test_hide_parameters_ties_rows_by_label_and_outcome():
    model = walk()
    forward = (model.successor == (model.row_state[model.transition_row] + 1) % 3).astype(int)
    found = hide_parameters(model, rows=[0, 1, 0], outcomes=1 - forward)
    assert sorted(found.theta) == pytest.approx([0.3, 0.6])
    np.testing.assert_allclose(found.mdp.probability, model.instantiate(np.zeros(0)).probability)
    with pytest.raises(ModelError, match="differ"):
        hide_parameters(model, rows=[0, 0, 0], outcomes=1 - forward)
    with pytest.raises(ModelError, match="each once"):
        hide_parameters(model, outcomes=np.zeros(6, int))
    kept = hide_parameters(model, rows=[-1, 0, -1])
    assert kept.pmdp.num_parameters == 1 and len(kept.theta) == 1


def test_hide_parameters_of_thousands_of_rows_is_lean():
    big = build(
        0, lambda s: {"go": {s: "1"} if s == 3000 else {s + 1: "0.9", max(s - 1, 0): "0.1"}}, domain=[],
        labels={"end": lambda s: s == 3000},
    )  # fmt: skip
    found = hide_parameters(big)
    assert found.pmdp.num_parameters == 3000 and found.pmdp.table.is_plain
    np.testing.assert_allclose(found.mdp.probability, big.instantiate(np.zeros(0)).probability)


def test_toy_text_rows_can_be_unknown():
    import gymnasium as gym

    kernel = gym.make("FrozenLake-v1").unwrapped.P
    model = build(
        0, lambda s: {str(a): _merged(kernel[s][a]) for a in kernel[s]}, domain=[], labels={"goal": lambda s: s == 15}
    )
    found = hide_parameters(model)
    np.testing.assert_allclose(found.mdp.probability, model.instantiate(np.zeros(0)).probability)


def _merged(outcomes):
    from fractions import Fraction

    row: dict = {}
    share = {1.0: Fraction(1)}
    for p, successor, _, _ in outcomes:
        row[int(successor)] = row.get(int(successor), 0) + share.get(p, Fraction(p).limit_denominator(10))
    return {s: str(p) for s, p in row.items()}


# ---------------------------------------------------------------------- rpl smc
TIED = ["commands", "--tie", "modules"]


@pytest.mark.parametrize(
    "unknown, epsilon",
    [
        (["rows"], 0.85), (["lossy"], 0.5), pytest.param(TIED, 0.5, marks=pytest.mark.nightly),
        *(pytest.param(unknown, 0.3, marks=pytest.mark.nightly) for unknown in (TIED, ["rows"], ["lossy"])),
    ],
)  # fmt: skip
def test_smc_ends_with_the_truth_inside(unknown, epsilon, tmp_path, capsys):
    path = tmp_path / "ring.prism"
    path.write_text(RING)
    status = main(["smc", str(path), "--property", REACH, "--epsilon", str(epsilon), "--delta", "0.1", "--seed",
                   "3", "--budget", "1e6", "--json", "--unknown", *unknown])  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert status == 0 and found["decided"] and found["upper"] - found["lower"] <= epsilon
    assert found["lower"] <= value(prism.loads(RING), REACH) <= found["upper"]


def test_smc_of_a_model_without_chance_says_so(tmp_path, capsys):
    path = tmp_path / "plain.prism"
    path.write_text("mdp\nmodule m\n x : [0..1];\n [] x=0 -> (x'=1);\n [] x=1 -> true;\nendmodule\n")
    assert main(["smc", str(path), "--property", "Pmax=? [F x=1]"]) == 2
    assert "nothing is unknown" in capsys.readouterr().err


def test_long_denominators_of_hidden_rows_are_forgotten():
    """Their common multiple had more digits than Python prints, so that the model had no hash."""
    denominators = [10**100 + 2 * k + 1 for k in range(50)]
    assert math.lcm(*denominators) > 10**4300
    rows = {f"a{n}": {"left": Fraction(n // 3, n), "right": 1 - Fraction(n // 3, n)} for n in denominators}
    known = build("start", lambda s: rows if s == "start" else {"stay": {s: 1}}, domain={})
    found = hide_parameters(known)
    assert found.pmdp.table.denominators[0] == 1
    assert found.pmdp.content_hash
    np.testing.assert_allclose(found.mdp.probability, known.instantiate(np.zeros(0)).probability, rtol=1e-12)
