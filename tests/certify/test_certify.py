"""The pipeline: every set and relaxation bounds the truth, certificates survive JSON, refuted models fall back."""

import json
import math
from functools import cache

import numpy as np
import pytest

import rpl_envs
from rpl_agent import (
    Certificate,
    Config,
    Counts,
    DataError,
    ModelError,
    Objective,
    RPLWarning,
    build,
    build_noise,
    certify,
)
from rpl_agent.cli import main
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Nature, Policy, Sense, Simulator
from rpl_agent.core.relaxations.interval import Point
from rpl_agent.core.solver import solve, solve_at
from rpl_agent.guarantee.confidence import confidence_names
from rpl_agent.guarantee.likelihood.estimate import point_estimate
from rpl_agent.guarantee.pipeline import RELAXATIONS, Solutions, certify_uncertainty, uncertainty_from
from rpl_agent.guarantee.shown import true_value
from tests.reference.domains import points_of
from tests.reference.regions import coordinates_in

COMBINATIONS = [
    (c, r) for c in confidence_names() for r in RELAXATIONS if not (r == "tied" and c in ("ellipsoid", "l1"))
]


def small_model(kind: str):
    """Four stages with two actions; affine or with products of two parameters."""
    forms = {
        "affine": ("0.2 + 0.5*p", "0.1 + 0.3*p + 0.4*q", "0.9 - 0.6*q"),
        "polynomial": ("0.2 + 0.5*p", "0.1 + 0.8*p*q", "0.9 - 0.6*q**2"),
    }[kind]

    def actions(state):
        stage, alive = state
        if stage == 4 or not alive:
            return {"end": {state: 1}}
        safe, risky = forms[stage % 3], forms[(stage + 1) % 3]
        return {
            "safe": {(stage + 1, 1): safe, (stage, 0): f"0.3*(1 - ({safe}))", state: f"0.7*(1 - ({safe}))"},
            "risky": {(stage + 1, 1): risky, (stage, 0): f"1 - ({risky})"},
        }

    return build(
        (0, 1), actions, domain=["p", "q"], labels={"done": lambda s: s[0] == 4, "dead": lambda s: not s[1]},
        rewards={"steps": lambda s, a: float(s[1])}, variables=("stage", "alive"), name=kind,
    )  # fmt: skip


def optimum(model, objective, theta):
    return solve(Point(model.instantiate(theta)), objective, Nature.COOPERATIVE)


@cache
def truths(kind: str, number: int):
    """A model, an objective, and as many parameter vectors with data of each and the optimum there."""
    model, objective = small_model(kind), Objective.reach("done", avoid="dead")
    rng, found = np.random.default_rng(7), []
    for theta in points_of(model.domain, rng, 6)[:number]:
        counts = uniform_counts(model, objective, theta, 300, 60, seed=int(rng.integers(1 << 30)))
        found.append((theta, counts, optimum(model, objective, theta).lower))
    return model, objective, found


@pytest.mark.parametrize("number", [1, pytest.param(6, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", ["affine", "polynomial"])
@pytest.mark.parametrize(("confidence", "relaxation"), COMBINATIONS)
def test_bounds_contain_the_truth(kind, confidence, relaxation, number):
    """Whenever θ is in the set (here: nearly always), lower ≤ V^π and V* ≤ upper."""
    model, objective, found = truths(kind, number)
    config, held = Config(confidence, relaxation, delta=0.01), 0
    for theta, counts, best in found:
        uncertainty = uncertainty_from(model, counts, config, objective)
        region = uncertainty.region
        if region is not None and not region.contains(coordinates_in(region, model, theta))[0]:
            continue
        certificate = certify_uncertainty(model, counts, uncertainty, objective, config)
        assert certificate.lower <= true_value(model, objective, certificate.policy, theta) + 1e-9
        assert best <= certificate.upper + 1e-9
        assert not certificate.refuted
        held += 1
    assert held >= number - 1 and held > 0


@pytest.mark.nightly
@pytest.mark.parametrize("delta", [0.1, 0.05])
@pytest.mark.parametrize("confidence", ["likelihood", "anytime", "clopper-pearson", "ellipsoid"])
def test_coverage(confidence, delta):
    """Share of data sets whose certificate is wrong, at a fixed number of episodes: at most δ plus three deviations."""
    model, objective = small_model("affine"), Objective.reach("done", avoid="dead")
    theta = np.array([0.35, 0.6])
    best = optimum(model, objective, theta)
    runs = 60
    wrong = 0
    for seed in range(runs):
        counts = uniform_counts(model, objective, theta, 60, 60, seed=seed)
        certificate = certify(model, counts, objective, Config(confidence, "rectangular", delta=delta))
        value = true_value(model, objective, certificate.policy, theta)
        wrong += certificate.lower > value + 1e-9 or best.lower > certificate.upper + 1e-9
    assert wrong <= runs * delta + 3 * math.sqrt(runs * delta * (1 - delta))


def test_costs_are_the_mirror_image():
    """A cost certificate promises an upper bound for the policy and a lower bound for every policy."""
    world = rpl_envs.benchmark("rpl/Glider-11x9-v0")
    counts = uniform_counts(world.pmdp, world.objective, world.theta, 3000, 100, seed=1)
    certificate = certify(world.pmdp, counts, world.objective)
    best = optimum(world.pmdp, world.objective, world.theta)
    assert world.objective.sense is Sense.MIN
    assert (
        certificate.guarantee
        == certificate.upper
        >= true_value(world.pmdp, world.objective, certificate.policy, world.theta)
    )
    assert certificate.lower <= best.upper
    assert "costs at most" in str(certificate)


def test_settings_replace_fields_of_the_configuration():
    world = rpl_envs.benchmark("Betting-25")
    counts = uniform_counts(world.pmdp, world.objective, np.array(world.theta), 50, 200, 0)
    found = certify(world.pmdp, counts, "maximise money until done", Config(relaxation="rectangular"), delta=0.2)
    same = certify(world.pmdp, counts, world.objective, Config(relaxation="rectangular", delta=0.2))
    assert (found.lower, found.upper, found.delta, found.relaxation) == (same.lower, same.upper, 0.2, "rectangular")
    with pytest.raises(ModelError, match=r"no argument .dleta.: the nearest is .delta."):
        certify(world.pmdp, counts, world.objective, dleta=0.2)


def test_a_given_policy_is_bounded_not_replaced():
    world = rpl_envs.benchmark("rpl/MarsRover-10x10-v0")
    counts = uniform_counts(world.pmdp, world.objective, world.theta, 2000, 50, seed=1)
    policy = Policy.uniform(world.pmdp)
    certificate = certify(world.pmdp, counts, world.objective, policy=policy)
    value = true_value(world.pmdp, world.objective, policy, world.theta)
    assert certificate.evaluated and certificate.policy is policy
    assert certificate.lower <= value <= certificate.upper < 0.8
    best = true_value(world.pmdp, world.objective, certify(world.pmdp, counts, world.objective).policy, world.theta)
    assert best > certificate.upper and "no policy" not in certificate.sentence


def test_warm_start_changes_nothing_but_the_work():
    world = rpl_envs.benchmark("rpl/Engagement-50-v0")
    warm = Solutions()
    for episodes in (1000, 2000):
        counts = uniform_counts(world.pmdp, world.objective, world.theta, episodes, 50, seed=2)
        warmed = certify(world.pmdp, counts, world.objective, warm=warm)
    cold = certify(world.pmdp, counts, world.objective)
    assert warmed.lower == pytest.approx(cold.lower, rel=1e-5) and warmed.upper == pytest.approx(cold.upper, rel=1e-5)


def test_json_round_trip(tmp_path):
    model, objective = small_model("affine"), Objective.reach("done", avoid="dead")
    counts = uniform_counts(model, objective, np.array([0.4, 0.4]), 100, 60, seed=0)
    certificate = certify(model, counts, objective)
    certificate.to_json(tmp_path / "c.json")
    again = Certificate.from_json(tmp_path / "c.json")
    assert again.to_dict() == certificate.to_dict()
    assert (again.policy.rows == certificate.policy.rows).all()
    for broken in ("{}", "{not json", json.dumps({"format": "other"})):
        with pytest.raises(DataError):
            Certificate.from_json(broken)


def test_infinite_bounds_survive_json():
    world = rpl_envs.benchmark("rpl/Engagement-50-v0")
    counts = uniform_counts(world.pmdp, world.objective, world.theta, 2, 5, seed=0)
    certificate = certify(world.pmdp, counts, world.objective, Config("clopper-pearson", "tied"))
    assert certificate.upper == math.inf
    assert Certificate.from_json(certificate.to_json()).upper == math.inf


def test_refuted_model_falls_back_to_untied_intervals():
    """Data from another structure: the certificate says so, and still bounds the truth of the real system."""

    def model(first, second, parameters):
        rows = {0: {0: f"1 - {first}", 1: first}, 1: {2: second, 3: f"1 - {second}"}}
        labels = {"goal": lambda s: s == 2, "lost": lambda s: s == 3}
        return build(0, lambda s: {"go": rows.get(s, {s: 1})}, domain=parameters, labels=labels)

    claimed, real = model("p", "p", ["p"]), model("0.9", "0.2", [])
    simulator = Simulator(real.instantiate([]), real.labels["goal"] | real.labels["lost"], 100, seed=0)
    batch = np.zeros(real.num_transitions, dtype=np.int64)
    simulator.run(Policy.uniform(real), 2000, batch)
    counts = Counts(claimed)
    counts.add_batch(batch)
    with pytest.warns(RPLWarning, match="refuted"):
        certificate = certify(claimed, counts, Objective.reach("goal", avoid="lost"))
    assert certificate.refuted and certificate.fallback and certificate.log_e_value > math.log(1000)
    assert certificate.lower <= 0.2 <= certificate.upper < 0.3


def test_empty_region_falls_back():
    """Contradicting fixed-N intervals leave no parameter: reported, with untied bounds."""

    def actions(s):
        return {"a": {1: "p", 2: "1-p"}, "b": {1: "0.5*p", 2: "1-0.5*p"}} if s == 0 else {"a": {s: 1}}

    model = build(0, actions, domain=["p"], labels={"goal": lambda s: s == 1, "lost": lambda s: s == 2})
    counts = Counts(model)
    for action, hits in (("a", 36), ("b", 36)):  # frequencies .9 and .9 cannot both be p and p/2
        for successor, n in ((1, hits), (2, 40 - hits)):
            counts.add(0, model.action_names.index(action), successor, n)
    with pytest.warns(RPLWarning, match="no parameter fits|refuted"):
        certificate = certify(
            model, counts, Objective.reach("goal", avoid="lost"), Config("clopper-pearson", "rectangular", delta=0.05)
        )
    assert certificate.fallback and (certificate.empty or certificate.refuted)
    assert certificate.lower <= 0.9 <= certificate.upper


@pytest.mark.parametrize("delta", [0.0, 1.0, -1, 2, math.nan])
def test_delta_must_be_a_probability(delta):
    with pytest.raises((DataError, ModelError), match="delta"):
        Config(delta=delta)


@pytest.mark.parametrize("confidence", confidence_names())
def test_small_deltas_are_divided_or_refused(confidence):
    """5e-324 has no shares, and quantiles of 1e-200 are no numbers."""
    for delta in (5e-324, 1e-200):
        with pytest.raises(DataError, match="too small to be divided: at least 1e-100"):
            Config(confidence, delta=delta)
    model, objective = small_model("affine"), Objective.reach("done", avoid="dead")
    counts = uniform_counts(model, objective, np.array([0.35, 0.6]), 300, 60, seed=1)
    certificate = certify(model, counts, objective, Config(confidence, "rectangular", delta=1e-100))
    assert 0.0 <= certificate.lower <= certificate.upper <= 1.0 and not certificate.fallback


def test_bad_settings_are_named():
    with pytest.raises(ModelError, match="confidence set 'magic'"):
        Config(confidence="magic")
    with pytest.raises(ModelError, match="relaxation 'none'"):
        Config(relaxation="none")
    model = small_model("affine")
    with pytest.raises(ModelError, match="without tied intervals"):
        certify(model, Counts(model), Objective.reach("done"), Config("ellipsoid", "tied"))
    with pytest.raises(DataError, match="another model"):
        certify(small_model("polynomial"), Counts(model), Objective.reach("done"))


def test_no_data_gives_an_honest_certificate():
    model = small_model("affine")
    certificate = certify(model, Counts(model), Objective.reach("done", avoid="dead"))
    assert 0 <= certificate.lower <= certificate.upper <= 1 and certificate.samples == 0


# by day every world, and every relaxation
DOCUMENTED = ["Aircraft-20x10", "Betting-25", "Engagement-50", "MarsRover-10x10", "Glider-11x9", "ParallelBetting-6"]


@pytest.mark.parametrize(("world", "relaxation"), [
    pytest.param(w, r, marks=() if w == "Betting-25" or r == Config().relaxation else pytest.mark.nightly)
    for w in DOCUMENTED for r in RELAXATIONS
])  # fmt: skip
def test_command_line(world, relaxation, capsys):
    """The command of the docs on every benchmark: one JSON object whose interval holds the true value."""
    assert main([
        "certify", f"rpl/{world}-v0", "--episodes", "2000", "--confidence", "clopper-pearson",
        "--relaxation", relaxation, "--evaluate", "optimal", "--seed", "5", "--json",
    ]) == 0  # fmt: skip
    result = json.loads(capsys.readouterr().out)
    assert {"lower", "upper", "value", "relative_gap", "build_seconds", "solve_seconds"} <= set(result)
    assert float(result["lower"]) <= result["value"] <= float(result["upper"])


@pytest.mark.filterwarnings("error")
def test_a_bracket_wider_than_the_precision_is_slack_and_no_warning():
    """Nobody asked the solver for a precision: the certificate is as wide as it says."""
    pmdp = small_model("affine")
    assert certify(pmdp, Counts(pmdp), Objective.reach("done", avoid="dead"), precision=1e-300).slack > 0


@pytest.mark.parametrize(
    "objective",
    [
        Objective.reach("won", avoid="lost"), Objective.cost("steps", target="over"),
        Objective.discounted("steps", 0.9), Objective.reach("won", horizon=7),
    ],
)  # fmt: skip
def test_the_estimate_is_the_value_at_the_estimated_parameters(objective):
    rows = {
        0: {"safe": {0: "1 - p", 1: "p"}, "bold": {1: "p*q", 2: "q - p*q", 0: "1 - q"}},
        1: {"on": {3: "q", 0: "1 - q"}}, 2: {"stay": {2: 1}}, 3: {"stay": {3: 1}},
    }  # fmt: skip
    pmdp = build(
        0, rows.__getitem__, domain={"p": (0.2, 0.6), "q": (0.3, 0.8)}, rewards={"steps": lambda s, a: float(s < 2)},
        labels={"won": lambda s: s == 3, "lost": lambda s: s == 2, "over": lambda s: s >= 2},
    )  # fmt: skip
    counts = uniform_counts(pmdp, objective, np.array([0.4, 0.6]), 100, 50, 1)
    found = certify(pmdp, counts, objective)
    theta = point_estimate(pmdp, counts)
    exact = solve_at(pmdp, theta, objective, policy=found.policy, precision=1e-12).middle
    certain = objective == Objective.reach("won", avoid="lost")  # by playing safe, whatever the parameters are
    assert (
        (found.lower == found.upper == found.estimate == 1.0) if certain else found.lower < found.estimate < found.upper
    )
    assert found.estimate == pytest.approx(exact, rel=1e-9)


def test_a_categorical_unknown_with_many_outcomes_needs_no_program_per_row_and_sweep():
    """Rows of a cyclic model over more coordinates than have a compiled form are bounded by their hull."""
    pmdp = build_noise(
        0,
        lambda stock: range(0, 71 - stock, 35),
        noise={"demand": list(range(70))},
        key=lambda stock, order: "demand",
        effect=lambda stock, order, demand: max(stock + order - demand, 0),
        rewards={"sold": lambda stock, order, rest: float(stock + order - rest)},
    )
    objective = Objective.discounted("sold", 0.9)
    counts = uniform_counts(pmdp, objective, np.full(pmdp.num_parameters, 1 / 70), 30, 20, 1)
    found = uncertainty_from(pmdp, counts, Config(), objective)
    assert found.region.kernel() is None
    assert found.relaxation.compiled() is not None
    best = solve_at(pmdp, np.full(pmdp.num_parameters, 1 / 70), objective)
    certificate = certify(pmdp, counts, objective)
    assert certificate.lower <= best.upper and best.lower <= certificate.upper
