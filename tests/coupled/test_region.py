"""Region questions: bounds against exact values on grids, Storm's parameter lifting, and what cannot be true."""

from __future__ import annotations

import json
import warnings
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from benchmarks.block_worlds import wet_chicken
from rpl_agent import Domain, ModelError, Objective, Sense, build, solve_region
from rpl_agent.cli import main
from rpl_agent.core.coupled import boxes, expansion
from rpl_agent.core.coupled.affine import AffineProof, BoxFrame, Side, cube_sizes
from rpl_agent.core.coupled.bounds import find_bound
from rpl_agent.core.coupled.boxes import BoxBounds
from rpl_agent.core.coupled.expansion import expand, expansion_of
from rpl_agent.core.coupled.region import EVERYWHERE, NOT_DECIDED, NOWHERE, SOMEWHERE, partition
from rpl_agent.core.errors import PrecisionWarning
from rpl_agent.core.model import cached_on
from rpl_agent.core.regions.base import Box
from rpl_agent.core.solver import solve_at
from rpl_agent.formats import prism

#: Knuth and Yao's die with two coins, p and q by turns
DIE = """
dtmc
const double p;
const double q;
module die
  s : [0..7] init 0;
  d : [0..6] init 0;
  [] s=0 -> p : (s'=1) + 1-p : (s'=2);
  [] s=1 -> q : (s'=3) + 1-q : (s'=4);
  [] s=2 -> q : (s'=5) + 1-q : (s'=6);
  [] s=3 -> p : (s'=1) + 1-p : (s'=7) & (d'=1);
  [] s=4 -> p : (s'=7) & (d'=3) + 1-p : (s'=7) & (d'=2);
  [] s=5 -> p : (s'=2) + 1-p : (s'=7) & (d'=6);
  [] s=6 -> p : (s'=7) & (d'=5) + 1-p : (s'=7) & (d'=4);
  [] s=7 -> true;
endmodule
rewards "throws" s<7 : 1; endrewards
"""
#: retries: send may take a lossy way (p) or a slow way (q*q); nothing is won by waiting
CHOICE = """
mdp
const double p;
const double q;
module sender
  s : [0..4] init 0;
  [fast] s=0 -> p : (s'=1) + 1-p : (s'=2);
  [slow] s=0 -> q*q : (s'=1) + 1-q*q : (s'=3);
  [wait] s=0 -> true;
  [go] s=1 -> p*q : (s'=4) + 1-p*q : (s'=0);
  [try] s=1 -> q : (s'=4) + 1-q : (s'=3);
  [back] s=2 -> 0.5 : (s'=0) + 0.5 : (s'=3);
  [] s>=3 -> true;
endmodule
rewards "cost" s=0 : 1; [slow] true : 1; [go] true : 1; [try] true : 3; [back] true : 1; endrewards
"""


def die_rolls_two(p: Fraction, q: Fraction) -> Fraction:
    """P(d = 2): state 1 is met with p at first, and again with q p each time."""
    return p * (1 - q) * (1 - p) / (1 - q * p)


def load(text: str, box: dict[str, tuple[float, float]], question: str) -> prism.Query:
    return prism.loads(text, parameters=box).query(question)


def grid(region: Domain, n: int) -> np.ndarray:
    axes = [np.linspace(lo, hi, n if lo < hi else 1) for lo, hi in zip(region.lower, region.upper)]
    return np.array(list(product(*axes)))


def test_a_time_limit_ends_with_the_bounds_so_far(tmp_path, capsys):
    """Bounds hold whenever the search ends; more time makes them narrower."""
    (tmp_path / "die.prism").write_text(DIE)
    ranges = ["--param", "p=0.2:0.8", "--param", "q=0.2:0.8", "--property", "P=? [ F d=1 ]", "--json"]
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        for limit in ([], ["--time-limit", "1e-9"]):
            assert main(["solve", "--model", str(tmp_path / "die.prism"), *ranges, *limit]) == 0
            found.append(json.loads(capsys.readouterr().out))
    long, short = found
    assert long["converged"] and not short["converged"] and short["boxes"] < long["boxes"]
    assert short["lower"] <= long["lower"] <= long["upper"] <= short["upper"]


@pytest.mark.parametrize("half", [Fraction(1, 50), Fraction(1, 10), Fraction(2, 5)])
def test_bounds_of_a_chain_are_those_of_exact_fractions(half):
    middle = Fraction(1, 2)
    ends = (float(middle - half), float(middle + half))
    query = load(DIE, {"p": ends, "q": ends}, "P=? [ F s=7 & d=2 ]")
    found = solve_region(query.pmdp, query.objective)
    steps = [Fraction(ends[0]) + (Fraction(ends[1]) - Fraction(ends[0])) * k / 40 for k in range(41)]
    exact = [die_rolls_two(p, q) for p in steps for q in steps]
    assert found.converged and Fraction(found.lower) <= min(exact) and max(exact) <= Fraction(found.upper)
    # as sharp as asked for, and the attained values are attained
    assert found.upper - found.lower <= 1.025 * float(max(exact) - min(exact))
    for point in (found.least, found.most):
        value = die_rolls_two(*(Fraction(x) for x in point.theta.tolist()))
        assert point.lower - 1e-12 <= value <= point.upper + 1e-12


@pytest.mark.parametrize("question", ["Pmax=? [ F s=4 ]", "Pmin=? [ F s=4 ]", 'R{"cost"}min=? [ F s>=3 ]',
                                      "Pmax=? [ F<=6 s=4 ]", "Pmin=? [ F<=6 s=3 ]"])  # fmt: skip
def test_bounds_and_the_policy_of_an_mdp_hold_on_a_grid(question, sized):
    query = load(CHOICE, {"p": (0.3, 0.9), "q": (0.5, 0.8)}, question)
    found = solve_region(query.pmdp, query.objective, precision=0.05)
    sign = 1.0 if query.objective.sense is Sense.MAX else -1.0
    for theta in grid(found.region, sized(4, 7)):
        value = solve_at(query.pmdp, theta, query.objective)
        assert found.lower <= value.upper and value.lower <= found.upper
        own = solve_at(query.pmdp, theta, query.objective, policy=found.policy)
        assert sign * (own.middle - found.guarantee) >= -1e-6
        assert sign * (found.best_possible - found.guarantee) >= -1e-6
    assert found.converged


def test_a_horizon_needs_few_boxes():
    """The value's gradient says in which corner it is largest, with a horizon as without."""
    query = load(DIE, {"p": (0.4, 0.6), "q": (0.4, 0.6)}, "P=? [ F<=9 s=7 & d=2 ]")
    found = solve_region(query.pmdp, query.objective)
    assert found.converged and found.boxes <= 60
    for theta in grid(found.region, 9):
        assert found.lower <= solve_at(query.pmdp, theta, query.objective).middle <= found.upper


def test_the_best_policy_against_the_worst_parameter_is_not_that_of_a_corner():
    """a wins with p, b with 1 − p, c with 0.4: whatever is best somewhere, against all p of [0.1, 0.9] it is c."""
    text = """mdp
    const double p;
    module m
      s : [0..2] init 0;
      [a] s=0 -> p : (s'=1) + 1-p : (s'=2);
      [b] s=0 -> 1-p : (s'=1) + p : (s'=2);
      [c] s=0 -> 0.4 : (s'=1) + 0.6 : (s'=2);
      [] s>0 -> true;
    endmodule"""
    query = load(text, {"p": (0.1, 0.9)}, "Pmax=? [ F s=1 ]")
    found = solve_region(query.pmdp, query.objective)
    assert found.lower <= 0.5 <= found.least.upper + 1e-3 and found.upper == pytest.approx(0.9, abs=0.02)
    assert found.guarantee == pytest.approx(0.4, abs=1e-9)
    assert found.policy.action(query.pmdp, query.pmdp.initial_state) == query.pmdp.action_names.index("c")


def test_a_polytope_is_smaller_than_its_box():
    query = load(DIE, {"p": (0.1, 0.9), "q": (0.1, 0.9)}, "P=? [ F s=7 & d=2 ]")
    whole = solve_region(query.pmdp, query.objective)
    part = Domain.box({"p": (0.1, 0.9), "q": (0.1, 0.9)}).with_constraints([[-1.0, -1.0]], [-1.4])  # p + q >= 1.4
    found = solve_region(query.pmdp, query.objective, part)
    points = [theta for theta in grid(found.region, 61) if theta.sum() >= 1.4]
    values = [float(die_rolls_two(*map(Fraction, theta.tolist()))) for theta in points]
    assert found.lower <= min(values) and max(values) <= found.upper
    assert found.upper - found.lower <= 1.05 * (max(values) - min(values)) < whole.upper - whole.lower
    for point in (found.least, found.most):
        assert found.region.contains(point.theta)


def test_a_region_where_the_cost_is_infinite():
    """At p = 1 the die's states 1 and 3 are never left: the bound says so, and a box away from it is finite."""
    query = load(DIE, {"p": (0.5, 1.0), "q": (0.5, 1.0)}, 'R{"throws"}=? [ F s=7 ]')
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        found = solve_region(query.pmdp, query.objective, max_boxes=30)
    assert found.upper == np.inf and found.lower <= 11 / 3
    finite = solve_region(query.pmdp, query.objective, {"p": (0.5, 0.75)})
    assert 3.0 < finite.lower < finite.upper < 50


def test_a_point_is_a_region():
    query = load(DIE, {"p": (0.25, 0.25), "q": (0.75, 0.75)}, "P=? [ F s=7 & d=2 ]")
    found = solve_region(query.pmdp, query.objective)
    exact = die_rolls_two(Fraction(1, 4), Fraction(3, 4))
    assert Fraction(found.lower) <= exact <= Fraction(found.upper) and found.upper - found.lower < 1e-9


def test_verdicts_and_their_points():
    query = load(DIE, {"p": (0.4, 0.6), "q": (0.4, 0.6)}, "P=? [ F s=7 & d=2 ]")
    found = solve_region(query.pmdp, query.objective, threshold=0.17)
    assert found.verdict("<=", 0.3).answer == EVERYWHERE == found.verdict(">", 0.05).answer
    assert found.verdict(">=", 0.3).answer == NOWHERE == found.verdict("<", Fraction(1, 20)).answer
    mixed = found.verdict("<=", 0.17)
    assert mixed.answer == SOMEWHERE and mixed.holds_at is not None and mixed.fails_at is not None
    for point, holds in ((mixed.holds_at, True), (mixed.fails_at, False)):
        assert (die_rolls_two(*map(Fraction, point.theta.tolist())) <= Fraction(17, 100)) == holds
    assert found.verdict("<=", found.upper - 1e-9 * (found.upper - found.lower)).answer == NOT_DECIDED
    with pytest.raises(ModelError, match="comparison '='"):
        found.verdict("=", 0.3)


def test_a_threshold_sharpens_the_bound_that_it_needs():
    query = load(DIE, {"p": (0.4, 0.6), "q": (0.4, 0.6)}, "P=? [ F s=7 & d=2 ]")
    rough = solve_region(query.pmdp, query.objective, precision=0.2)
    limit = rough.most.upper + 0.1 * (rough.upper - rough.most.upper)  # above all values, below the rough bound
    assert rough.verdict("<", limit).answer == NOT_DECIDED
    assert (
        solve_region(query.pmdp, query.objective, precision=0.2, threshold=limit).verdict("<", limit).answer
        == EVERYWHERE
    )


def test_a_partition_tells_the_truth_in_every_box():
    query = load(DIE, {"p": (0.2, 0.8), "q": (0.2, 0.8)}, "P=? [ F s=7 & d=2 ]")
    parts = partition(query.pmdp, query.objective, ">", 0.17, undecided=0.1)
    rng = np.random.default_rng(0)
    volume = np.prod(parts.upper - parts.lower, axis=1) / 0.36
    assert volume.sum() == pytest.approx(1.0) and volume[parts.holds == 0].sum() <= 0.1
    assert parts.shares == pytest.approx((volume[parts.holds == 1].sum(), volume[parts.holds == -1].sum()))
    assert 0.02 < parts.shares[0] < 0.98
    for lower, upper, holds in zip(parts.lower, parts.upper, parts.holds.tolist()):
        for theta in (lower, upper, rng.uniform(lower, upper)):
            exact = die_rolls_two(*map(Fraction, theta.tolist()))
            assert holds == 0 or (exact > Fraction(0.17)) == (holds > 0)


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(k, marks=pytest.mark.nightly) for k in range(8, 20))])
def test_affine_bounds_over_boxes_hold_at_points(seed):
    """Every bound of a box on its own, on both sides, for the optimum and for one policy."""
    rng = np.random.default_rng(seed)
    query = load(
        CHOICE, {"p": (0.1, 0.9), "q": (0.1, 0.9)}, ["Pmax=? [ F s=4 ]", 'R{"cost"}min=? [ F s>=3 ]'][seed % 2]
    )
    lower = rng.uniform(0.1, 0.8, 2)
    upper = lower + rng.uniform(0.0, 0.1, 2)
    policy = None if seed % 4 < 2 else solve_at(query.pmdp, lower, query.objective).policy
    bounds = BoxBounds(query.pmdp, query.objective, query.pmdp.domain, policy)
    ends = [bounds.piece(side, lower, upper).bound for side in (Side.LOWER, Side.UPPER)]
    for theta in [lower, upper, *rng.uniform(lower, upper, (20, 2))]:
        value = solve_at(query.pmdp, theta, query.objective, policy=policy)
        assert ends[0] <= value.upper and value.lower <= ends[1]
    assert np.isfinite(ends).all()


def test_every_policy_is_bounded_from_a_policy_that_draws_its_rows():
    query = load(CHOICE, {"p": (0.4, 0.42), "q": (0.6, 0.62)}, "Pmax=? [ F s=4 ]")
    bounds = BoxBounds(query.pmdp, query.objective, query.pmdp.domain)
    frame = BoxFrame.around(query.pmdp.domain.lower, query.pmdp.domain.upper)
    mixed = solve_at(query.pmdp, frame.center, query.objective).policy.mixed(query.pmdp, 0.999)
    expansion = expand(bounds.problem, frame, mixed)
    bound = find_bound(bounds.problem, expansion, Side.UPPER, every_policy=True)
    box = Box(query.pmdp.domain.lower, query.pmdp.domain.upper)
    assert bound is not None and AffineProof(bounds.problem, box).issues(bound) == []
    best = solve_at(query.pmdp, query.pmdp.domain.upper, query.objective)
    assert bound.at(box, query.pmdp.initial_state) >= best.lower


def test_a_cube_is_no_ball():
    """y₁ y₂ and y₁ + y₂ are larger in the corners of the cube than anywhere in the ball."""
    query = load(CHOICE, {"p": (0.1, 0.9), "q": (0.1, 0.9)}, "Pmax=? [ F s=4 ]")
    frame = BoxFrame.around(np.array([0.3, 0.5]), np.array([0.5, 0.8]))
    assert frame.encloses(Box(np.array([0.3, 0.5]), np.array([0.5, 0.8])))
    assert not frame.encloses(Box(np.array([0.3, 0.5]), np.array([0.5, 0.8000001])))
    forms = frame.split(query.pmdp.table)
    rows, columns = np.tril_indices(2)
    for y in product((-1.0, 0.3, 1.0), repeat=2):
        y = np.array(y)
        form = np.where(rows == columns, 1.0, 2.0) * y[rows] * y[columns]
        about = forms.p + forms.slope @ y + forms.curvature @ form
        exact = query.pmdp.table.at(frame.center + frame.half * y)
        assert (np.abs(about - exact) <= forms.error + 1e-15).all()
        assert (np.abs(forms.curvature @ form) <= cube_sizes(forms.curvature, 2)).all()
    assert forms.error.max() < 1e-13  # of degree two: nothing is left


def test_wrong_regions_are_refused():
    query = load(DIE, {"p": (0.2, 0.8), "q": (0.2, 0.8)}, "P=? [ F s=7 & d=2 ]")
    with pytest.raises(ModelError, match="no parameter 'r'"):
        solve_region(query.pmdp, query.objective, {"r": (0.1, 0.2)})
    with pytest.raises(ModelError, match=r"p = 0\.1:0\.5 is not a range"):
        solve_region(query.pmdp, query.objective, {"p": (0.1, 0.5)})
    with pytest.raises(ModelError, match="precision"):
        solve_region(query.pmdp, query.objective, precision=0.0)
    empty = Domain.box({"p": (0.2, 0.8), "q": (0.2, 0.8)}).with_constraints([[1.0, 1.0]], [0.3])
    with pytest.raises(ModelError, match="empty"):
        solve_region(query.pmdp, query.objective, empty)


def test_a_discount():
    query = load(CHOICE, {"p": (0.3, 0.9), "q": (0.5, 0.8)}, "Pmax=? [ F s=4 ]")
    objective = Objective.discounted("cost", 0.9, sense=Sense.MIN)
    found = solve_region(query.pmdp, objective, precision=0.05)
    for theta in grid(found.region, 6):
        value = solve_at(query.pmdp, theta, objective)
        assert found.lower <= value.upper and value.lower <= found.upper


# ---------------------------------------------------------------------- the command
@pytest.fixture
def die_file(tmp_path):
    path = tmp_path / "die.prism"
    path.write_text(DIE)
    return str(path)


def asked(capsys, *arguments: str) -> dict:
    assert main(["solve", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_rpl_solve_answers_for_a_region(die_file, tmp_path, capsys):
    source = ("--model", die_file, "--param", "p=0.4:0.6", "--param", "q=0.4:0.6")
    yes = asked(capsys, *source, "--property", "P<=0.3 [ F s=7 & d=2 ]")
    assert yes["answer"] == EVERYWHERE and yes["upper"] < 0.3 and yes["region"] == {"p": "0.4:0.6", "q": "0.4:0.6"}
    no = asked(capsys, *source, "--property", "P>0.3 [ F s=7 & d=2 ]")
    assert no["answer"] == NOWHERE and "holds_at" not in no
    picture = tmp_path / "parts.png"
    parts = asked(capsys, *source, "--property", "P<0.17 [ F s=7 & d=2 ]", "--plot", str(picture))
    assert parts["answer"] == SOMEWHERE and parts["holds_share"] + parts["fails_share"] >= 0.95
    assert die_rolls_two(*(Fraction(x) for x in parts["holds_at"].values())) < Fraction(17, 100)
    assert picture.stat().st_size > 10_000
    value = asked(capsys, *source, "--property", "P=? [ G d!=2 ]", "--plot", str(tmp_path / "values.svg"))
    assert value["lower"] == pytest.approx(1 - yes["upper"]) and value["upper"] == pytest.approx(1 - yes["lower"])
    sure = asked(capsys, *source, "--property", "P>=1 [ F s=7 ]")
    assert sure["answer"] == EVERYWHERE and sure["lower"] == 1.0


def test_rpl_solve_refuses_what_is_no_region_question(die_file, tmp_path, capsys):
    def refused(*arguments: str) -> str:
        assert main(["solve", "--model", die_file, *arguments]) == 2
        return capsys.readouterr().err

    question = ("--property", "P=? [ F s=7 & d=2 ]")
    point = ("--theta", "p=0.5", "--theta", "q=0.5")
    reason = "would not be used: it is for regions only"
    assert f"--plot {reason}" in refused(*question, *point, "--plot", str(tmp_path / "a.png"))
    assert f"--boxes {reason}" in refused(*question, *point, "--boxes", "10")
    assert "single state" in refused("--param", "p=0.4:0.6", "--property", "filter(max, P=? [ F s=7 & d=2 ], s<3)")


@pytest.mark.parametrize("question", ["P=? [ F s=7 & d=2 ]", 'R{"throws"}=? [ F s=7 ]'])
def test_storm_agrees(question, tmp_path):
    stormpy = pytest.importorskip("stormpy", reason="the peer stormpy is not installed (extra 'peers')")
    pars = pytest.importorskip("stormpy.pars")
    path = tmp_path / "die.prism"
    path.write_text(DIE)
    program = stormpy.parse_prism_program(str(path))
    formula = stormpy.parse_properties(question, program)[0]
    model = stormpy.build_model[stormpy.RationalFunction](program, [formula])
    number = pars.RationalFunctionCoefficient
    names = {variable.name: variable for variable in model.collect_all_parameters()}
    box = pars.create_region({names[n]: (number("0.4"), number("0.6")) for n in ("p", "q")})
    ends = []
    for direction in (pars.OptimizationDirection.MINIMIZE, pars.OptimizationDirection.MAXIMIZE):
        value, _ = pars.compute_extremal_value(model, formula, region=box, direction=direction, precision=1e-5,
                                               absolute_precision=True)  # fmt: skip
        ends.append(float(value))
    query = load(DIE, {"p": (0.4, 0.6), "q": (0.4, 0.6)}, question)
    found = solve_region(query.pmdp, query.objective)
    width = ends[1] - ends[0]
    assert found.lower <= ends[0] + 1e-5 and ends[1] - 1e-5 <= found.upper
    assert found.lower >= ends[0] - 0.02 * width and found.upper <= ends[1] + 0.02 * width


def test_each_round_of_slack_pays_the_geometric_series() -> None:
    """Two heads in a row: rounds that forgot how much a payment leaves to be paid ran out before they had paid."""
    flips = {0: {"flip": {1: "p", 0: "1 - p"}}, 1: {"flip": {2: "p", 0: "1 - p"}}, 2: {"stay": {2: 1}}}
    coin = build(
        0, flips.__getitem__, domain={"p": (0.125, 0.875)}, labels={"done": lambda s: s == 2},
        rewards={"flips": lambda s, a: float(s != 2)},
    )  # fmt: skip
    bounds = BoxBounds(coin, Objective.cost("flips", target="done"), coin.domain)
    found = bounds.piece(Side.UPPER, coin.domain.lower, coin.domain.upper, eager=False)
    assert found is not None and 72.0 <= found.bound < 150.0  # (1 + p) / p² at p = 1/8


def test_a_large_chain_keeps_the_order_of_its_first_factorisation(monkeypatch):
    monkeypatch.setattr(expansion, "REORDERED", 0)
    query = load(DIE, {"p": (0.2, 0.8), "q": (0.2, 0.8)}, 'R{"throws"}=? [ F s=7 ]')
    bounds = BoxBounds(query.pmdp, query.objective, query.pmdp.domain)
    rng = np.random.default_rng(0)
    for k, theta in enumerate(rng.uniform(0.2, 0.8, (4, 2))):
        exact = solve_at(query.pmdp, theta, query.objective, precision=1e-12).middle
        assert bounds.value(theta) == pytest.approx(exact, rel=1e-11)
        (chain,) = cached_on(query.pmdp, "chains", lambda _: {}).values()
        assert chain.is_ordered == (k > 0)


def test_a_value_does_not_depend_on_what_was_computed_before():
    """Not even in its last digits: searches from there would end elsewhere, and the same data have two certificates."""
    world = wet_chicken()
    thetas = [share * np.asarray(world.theta) for share in np.linspace(0.9, 1.0, 8)]
    found = []
    for order in (thetas, thetas[::-1]):
        bounds = BoxBounds(wet_chicken().pmdp, world.objective, world.pmdp.domain)
        found.append([bounds.value(theta) for theta in order])
    assert found[0] == found[1][::-1]


def test_a_time_limit_is_looked_at_inside_a_box(monkeypatch):
    """Every expansion takes ten seconds of a clock of our own: a limit of 15 leaves one box and one point a side."""
    clock, seconds = [0.0], 10.0
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])

    def slow(*arguments):
        clock[0] += seconds
        return expansion_of(*arguments)

    monkeypatch.setattr(boxes, "expansion_of", slow)
    rows = {0: {"a": {1: "p*q", 2: "1-p*q"}, "b": {1: "p*p", 2: "1-p*p"}}, 1: {"end": {1: 1}}, 2: {"end": {2: 1}}}
    pmdp = build(0, rows.get, domain={"p": (0.1, 0.9), "q": (0.1, 0.9)}, labels={"won": lambda s: s == 1})
    with pytest.warns(PrecisionWarning):
        found = solve_region(pmdp, Objective.reach("won"), precision=1e-6, time_limit=15.0)
    assert clock[0] <= 15.0 + 4 * seconds
    assert not found.converged
    assert found.lower <= 0.01 <= 0.81 <= found.upper  # sound, and the policy's guarantee too
    assert found.guarantee <= 0.01
