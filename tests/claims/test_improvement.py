"""Improvements over a policy in use: against exact rationals, on the cliff grid, and how often they are false."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import rpl_envs
from benchmarks.improvement_worlds import TRUTH, cliff_grid, logged, softened
from rpl_agent import Counts, LogReturns, improve, log_returns
from rpl_agent.cli import main
from rpl_agent.core.coupled.difference import Comparison
from rpl_agent.core.errors import DataError, ModelError
from rpl_agent.core.model import Objective, ParametricMDP, Policy, Sense, build
from rpl_agent.core.regions.lifting import build_region
from rpl_agent.core.relaxations.rectangular import Rectangular
from rpl_agent.core.solver import solve_at
from rpl_agent.formats import prism
from rpl_agent.formats.logs import read_log, simulate_log
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.claims.frequencies import logged_baseline
from rpl_agent.guarantee.claims.improvement import COMMON, RETURNS, more_episodes
from rpl_agent.guarantee.proof.stated import stated
from rpl_agent.guarantee.shown import true_value
from rpl_agent.guarantee.verify import verify_improvement
from tests.coupled.test_coupled import CENTER, cases, prepared
from tests.reference.coupled import box_points, exact_value, objectives
from tests.reference.worlds import with_heights
from tests.small_worlds import make_worlds_small

GAIN = Objective.discounted("gain", 0.99, target="end")
#: two tosses, each of one of two coins: two heads win
COINS = """mdp
const double p;
const double q;
module coins
  s : [0..3] init 0;
  [one] s<2 -> p:(s'=s+1) + 1-p:(s'=3);
  [other] s<2 -> q:(s'=s+1) + 1-q:(s'=3);
  [stay] s>1 -> true;
endmodule
label "won" = s=2;
"""


@pytest.mark.parametrize("objective", objectives(), ids=lambda o: o.describe())
def test_differences_contain_the_exact_ones(objective, sized):
    """Two policies at corners and inside of a region, from the whole region and from its pieces."""
    checked, tight = 0, 0
    for seed, polynomial, loops, kind in cases(sized(2, 4)):
        width = (0.02, 0.1)[seed % 2]
        pmdp, region, relaxation = prepared(seed, polynomial, loops, kind, width)
        rng = np.random.default_rng(seed)
        pair = [Policy.deterministic(rng.integers(pmdp.state_ptr[:-1], pmdp.state_ptr[1:])) for _ in range(2)]
        for pieces in (1, 6):
            found = Comparison(relaxation, region, objective, *pair).bounds(pieces, pieces)
            tight += found.upper < np.inf and found.lower > -np.inf
            for theta in box_points(CENTER, Fraction(width), seed, 2):
                exact = [exact_value(pmdp, objective, theta, policy) for policy in pair]
                if found.lower > -np.inf:
                    assert Fraction(found.lower) <= exact[0] - exact[1], (seed, pieces)
                if found.upper < np.inf:
                    assert exact[0] - exact[1] <= Fraction(found.upper), (seed, pieces)
                checked += 1
    assert checked > 20 and tight > 4


def test_pieces_bound_a_difference_from_outside_and_closely():
    """p² − 4/5 p² is at most .162 for p in [.1, .9]: the whole gives .29, pieces .1621."""

    def rows(state):
        if state in ("won", "lost"):
            return {"stay": {state: 1}}
        if state == "start":
            return {"bold": {"high": "p", "lost": "1 - p"}, "shy": {"low": "p", "lost": "1 - p"}}
        chance = {"high": "p", "low": "4/5*p"}[state]
        return {"toss": {"won": chance, "lost": f"1 - {chance}"}}

    pmdp = build("start", rows, domain={"p": (0, 1)}, labels={"won": lambda s: s == "won"})
    ends = pmdp.table.at(np.array([[0.1], [0.9]]))
    region = build_region(pmdp, ends.min(axis=0), ends.max(axis=0))
    bold, shy = pmdp.state_ptr[:-1].copy(), pmdp.state_ptr[:-1].copy()
    shy[pmdp.initial_state] += 1
    pair = [Policy.deterministic(rows) for rows in (bold, shy)]
    comparison = Comparison(Rectangular(pmdp, region), region, Objective.reach("won"), *pair)
    whole, pieces = comparison.bounds(1, 1), comparison.bounds(16, 16)
    assert pieces.lower <= 0.002 and 0.162 <= pieces.upper < 0.1623 < 0.2 < whole.upper


@pytest.fixture(scope="module")
def grid():
    pmdp = cliff_grid()
    theta = np.array([TRUTH[name] for name in pmdp.table.parameters])
    best = solve_at(pmdp, theta, GAIN).policy
    return pmdp, theta, best, softened(pmdp, best, 0.2)


def test_ten_episodes_of_the_cliff_grid_suffice(grid):
    pmdp, theta, _, baseline = grid
    found = improve(pmdp, logged(pmdp, theta, GAIN, baseline, 10, 0), GAIN, baseline)
    low, high = found.value[0] - found.baseline_value[1], found.value[1] - found.baseline_value[0]
    assert found.improves and found.method == COMMON and found.lower > 1.0 and low < -5.0 < 0.0 < high
    gain = true_value(pmdp, GAIN, found.policy, theta) - true_value(pmdp, GAIN, baseline, theta)
    assert found.lower <= gain <= found.upper
    assert "at least" in str(found) and json.loads(found.to_json())["proved"] is False


def test_costs_improve_downwards(grid):
    pmdp, theta, _, _ = grid
    steps = Objective.discounted("steps", 0.95, target="done", sense=Sense.MIN)
    best = solve_at(pmdp, theta, steps).policy
    baseline = softened(pmdp, best, 0.5)
    counts = logged(pmdp, theta, steps, baseline, 200, 1)
    found = improve(pmdp, counts, steps, baseline)
    gain = true_value(pmdp, steps, baseline, theta) - true_value(pmdp, steps, found.policy, theta)
    assert 0.0 < found.lower <= gain <= found.upper
    assert "estimate 0\n" in str(improve(pmdp, counts, steps, best, best)), "no gain is 0, not -0"


def test_the_best_policy_is_not_improved(grid):
    pmdp, theta, best, _ = grid
    counts = logged(pmdp, theta, GAIN, best, 100, 2)
    found = improve(pmdp, counts, GAIN, best)
    assert not found.improves and found.lower == found.upper == 0.0  # the policy itself is the best candidate
    worse = improve(pmdp, counts, GAIN, best, softened(pmdp, best, 0.5))
    assert worse.upper < 0.0 and "worse" in worse.sentence and worse.more_episodes is None


def coin_model():
    """Three tries; safe wins with 1/2, bold with p; both cost a try."""

    def actions(s):
        if s in ("won", "lost"):
            return {"stay": {s: 1}}
        after = "lost" if s == 2 else s + 1
        return {"bold": {"won": "p", after: "1 - p"}, "safe": {"won": "q", after: "1 - q"}}

    return build(
        0, actions, domain=["p", "q"], labels={"won": lambda s: s == "won", "over": lambda s: isinstance(s, str)}
    )


WON = Objective.reach("won")


def coin_counts(pmdp, theta, policy, episodes, rng):
    """Counts and returns of some episodes; data decide how many there are."""
    counts, returns = Counts(pmdp), []
    mdp = pmdp.instantiate(theta)
    while len(returns) < episodes or (len(returns) < 2 * episodes and np.mean(returns) < 0.8):
        state = pmdp.initial_state
        while not pmdp.labels["over"][state]:
            row = policy.row(pmdp, state, rng)
            lo, hi = pmdp.row_ptr[row], pmdp.row_ptr[row + 1]
            t = lo + rng.choice(hi - lo, p=mdp.probability[lo:hi])
            counts.add(state, int(pmdp.action[row]), int(pmdp.successor[t]))
            state = int(pmdp.successor[t])
        returns.append(float(pmdp.labels["won"][state]))
    return counts, np.array(returns)


@pytest.mark.parametrize("runs", [6, pytest.param(400, marks=pytest.mark.nightly)])
def test_false_improvements_are_rare(runs):
    """With the best policy as the baseline every improvement is false; all statements must hold at once."""
    delta, rng, missed = 0.2, np.random.default_rng(7), 0
    pmdp = coin_model()
    for _ in range(runs):
        theta = rng.uniform(0.2, 0.8, 2)
        best = solve_at(pmdp, theta, WON).policy
        behaviour = softened(pmdp, best, 0.4)
        counts, returns = coin_counts(pmdp, theta, behaviour, 20, rng)
        truth = [true_value(pmdp, WON, policy, theta) for policy in (best, behaviour)]
        for baseline, value, given in (
            (best, truth[0], None),
            ("log", truth[1], LogReturns(returns, returns, (0.0, 1.0))),
        ):
            found = improve(pmdp, counts, WON, baseline, delta=delta, returns=given)
            own = true_value(pmdp, WON, found.policy, theta)
            holds = found.lower - 1e-9 <= own - value <= found.upper + 1e-9
            holds &= found.value[0] - 1e-9 <= own <= found.value[1] + 1e-9
            holds &= found.baseline_value[0] - 1e-9 <= value <= found.baseline_value[1] + 1e-9
            missed += not holds
            assert given is not None or not found.improves or not holds
    assert missed <= 2 * runs * delta / 4  # in fact 0: bounds are wider than they need be


def test_an_unknown_baseline_is_bounded_by_its_returns(grid, tmp_path):
    pmdp, theta, _, baseline = grid
    stop = GAIN.resolve(pmdp).decided
    log = tmp_path / "log.csv"
    simulate_log(log, pmdp, theta, episodes=1500, max_steps=1000, seed=3, stop=stop, policy=baseline)
    returns = log_returns(pmdp, log, GAIN, bounds=(-155.0, 0.0))  # steps cost at most 100, a fall 55
    assert len(returns.least) == 1500 and np.array_equal(returns.least, returns.most)
    counts = read_log(pmdp, log).counts
    value = true_value(pmdp, GAIN, baseline, theta)
    assert returns.least.mean() == pytest.approx(value, abs=1.0)
    found = improve(pmdp, counts, GAIN, "log", returns=returns)
    assert found.method == RETURNS and found.baseline is None
    assert found.baseline_value[0] <= value <= found.baseline_value[1] < 0.8 * value < 0.0
    assert found.improves and found.lower < 8.5
    assumed = "it is stated, not proved, that an episode returns -155 to 0"
    assert f"NOTE: {assumed}" in str(found)
    assert assumed in verify_improvement(found, pmdp, counts, returns).notes
    fixed = improve(pmdp, counts, GAIN, baseline, confidence="clopper-pearson", relaxation="rectangular")
    assert fixed.notes and set(fixed.notes) <= set(verify_improvement(replace(fixed, notes=()), pmdp, counts).notes)
    with pytest.raises(ModelError, match="log_returns"):
        improve(pmdp, counts, GAIN, "log")
    with pytest.raises(ModelError, match="neither a Policy"):
        improve(pmdp, counts, GAIN, "uniform")
    total = Objective.total("gain", target="end", horizon=None)
    with pytest.raises(DataError, match="bounded returns"):
        improve(pmdp, counts, total, "log", returns=log_returns(pmdp, log, total))


@pytest.mark.parametrize("start", [{"play": 0.3, "won": 0.7}, {"play": 0.3, "lost": 0.7}, "won"], ids=str)
def test_returns_of_a_log_without_rows_of_some_plays_bound_nothing(tmp_path, start):
    """Seven of ten plays are over before their first step: the mean of the others is .4 where the policy earns .82."""
    tosses = {"play": {"a": {"won": "p", "lost": "1 - p"}}}
    pmdp = build(start, lambda s: tosses.get(s, {"stay": {s: 1}}), domain=["p"], labels={"won": lambda s: s == "won"})
    log = tmp_path / "log.csv"
    log.write_text("state,action,next_state\nplay,a,won\nplay,a,lost\n")
    with pytest.raises(DataError, match="where they are over"):
        log_returns(pmdp, log, "maximise probability of won")


@pytest.fixture
def two_starts(tmp_path) -> tuple[ParametricMDP, list[str], Path]:
    """Plays of one step that start in A or B alike and mostly end in A; only B pays: they are worth 0.5."""
    pmdp = build(
        {"A": 0.5, "B": 0.5},
        lambda s: {"go": {"A": "p", "B": "1 - p"}},
        domain={"p": (0.1, 0.9)},
        rewards={"gain": lambda s, a: 1.0 * (s == "B")},
    )
    rng = np.random.default_rng(0)
    steps = [f"{'AB'[rng.integers(2)]},go,{'B' if rng.random() < 0.1 else 'A'}" for _ in range(2000)]
    return pmdp, steps, tmp_path / "log.csv"


def test_returns_need_to_know_where_episodes_begin(two_starts):
    """Before: a play from A that followed one that ended in A was lost, and at least 0.87 was said to be certain."""
    pmdp, steps, log = two_starts
    objective = Objective.reward("gain", horizon=1)
    log.write_text("\n".join(["state,action,next_state", *steps]))
    assert read_log(pmdp, log).counts.total == 2000  # transitions are the same wherever episodes begin
    with pytest.raises(
        DataError, match="begins in 'A', where plays start and the previous row led: a column 'episode'"
    ):
        log_returns(pmdp, log, objective)
    numbered = [f"{step},{k}" for k, step in enumerate(steps)]
    log.write_text("\n".join(["state,action,next_state,episode", *numbered]))
    low, high = log_returns(pmdp, log, objective).mean(0.01)
    assert low < 0.5 < high < 0.56


def test_rows_of_an_episode_must_not_be_scattered(two_starts):
    """Before: a row that went on with an earlier play counted as a play of its own."""
    pmdp, _, log = two_starts
    objective = Objective.reward("gain", horizon=1)
    log.write_text("\n".join(["state,action,next_state,episode", "A,go,A,1", "B,go,A,2", "A,go,A,1"]))
    assert read_log(pmdp, log).counts.total == 3
    with pytest.raises(DataError, match=r"log.csv:4: goes on with episode 1, which ended before"):
        log_returns(pmdp, log, objective)
    for name in ("first", "second"):  # a log in pieces: each may number its own
        (log.parent / f"{name}.csv").write_text("state,action,next_state,episode\nA,go,A,1\nB,go,A,2\n")
    pieces = [log.parent / "first.csv", log.parent / "second.csv"]
    assert log_returns(pmdp, pieces, objective).least.tolist() == [0.0, 1.0, 0.0, 1.0]


def test_a_part_of_the_state_is_no_mark(tmp_path):
    """Before: a change of the variable called episode began a play."""
    pmdp = build(
        (0,), lambda s: {"go": {(s[0] + 1,): "p", (0,): "1 - p"}} if s[0] < 2 else {"stay": {s: 1}}, domain=["p"],
        variables=("episode",), labels={"end": lambda s: s[0] == 2}, rewards={"gain": lambda s, a: float(s[0])},
    )  # fmt: skip
    log = tmp_path / "log.csv"
    simulate_log(log, pmdp, [0.5], episodes=1, max_steps=3, stop=pmdp.labels["end"], seed=3)
    assert log.read_text().split()[0] == "episode,action,next_episode"
    log.write_text("episode,action,next_episode\n0,go,1\n1,go,2\n")
    returns = log_returns(pmdp, log, Objective.discounted("gain", 0.5, target="end"))
    assert returns.least.tolist() == [0.5] and returns.most.tolist() == [0.5]


def test_returns_of_a_log_say_nothing_of_the_reward_of_an_instant(grid, tmp_path):
    """They would be 0, whatever the state is worth."""
    pmdp, theta, _, baseline = grid
    simulate_log(tmp_path / "log.csv", pmdp, theta, episodes=5, max_steps=9, policy=baseline)
    with pytest.raises(DataError, match="the reward of an instant"):
        log_returns(with_heights(pmdp), tmp_path / "log.csv", Objective.instant("height", 4), bounds=(0.0, 3.0))


def test_a_cut_episode_counts_with_all_that_it_may_still_earn(tmp_path):
    pmdp = build(
        0, lambda s: {"go": {s + 1: "p", s: "1 - p"}} if s < 3 else {"stay": {s: 1}}, domain=["p"],
        labels={"end": lambda s: s == 3}, rewards={"gain": lambda s, a: 0.0 if s == 3 else -1.0 if s == 1 else 2.0},
    )  # fmt: skip
    log = tmp_path / "log.csv"
    log.write_text("state,action,next_state\n0,go,1\n1,go,2\n2,go,3\n0,go,1\n")
    discounted = log_returns(pmdp, log, Objective.discounted("gain", 0.5, target="end"))
    np.testing.assert_allclose(discounted.least, [2.0, 2.0 - 0.5 * 2.0])
    np.testing.assert_allclose(discounted.most, [2.0, 2.0 + 0.5 * 4.0])
    given = log_returns(pmdp, log, Objective.discounted("gain", 0.5, target="end"), bounds=(-3.0, 4.0))
    np.testing.assert_allclose((given.least, given.most), ([2.0, -3.0], [2.0, 4.0]))
    assert given.assumption is discounted.assumption is None  # the model says so, too
    less = log_returns(pmdp, log, Objective.discounted("gain", 0.5, target="end"), bounds=(-1.5, 4.0))
    assert less.assumption == "it is stated, not proved, that an episode returns -1.5 to 4"
    short = log_returns(pmdp, log, Objective.reward("gain", horizon=1))
    np.testing.assert_allclose((short.least, short.most), ([2.0, 2.0], [2.0, 2.0]))
    with pytest.raises(DataError, match="wider bounds"):
        log_returns(pmdp, log, Objective.discounted("gain", 0.5, target="end"), bounds=(-3.0, 1.0))


def test_a_number_of_episodes_that_was_fixed_makes_bounds_tighter():
    values = np.random.default_rng(0).random(500)
    free, fixed = (LogReturns(values, values, (0.0, 1.0), known).mean(0.01) for known in (False, True))
    assert free[0] < fixed[0] < 0.5 < fixed[1] < free[1]


def test_the_forecast_solves_its_own_equation():
    assert more_episodes(100, 0.5, 1.0, 1.0) == 0
    assert more_episodes(100, -1.0, 1.0, -0.1) is None
    assert more_episodes(10, -1.0, np.nan, 1e-170) is None  # more than there are floats
    assert more_episodes(100, -1.0, np.nan, 1.0) == 300  # twice too wide, by the square root
    assert more_episodes(100, -1.0, 0.0, 1.0) == 100  # of second order
    between = more_episodes(100, -1.0, 1.0, 1.0)
    share = 100 / (100 + between)
    assert 100 < between < 300 and share**0.5 + share == pytest.approx(1.0, rel=0.02)


def test_a_proof_of_less_tells_how_much_more_it_takes(grid):
    """Without it, a computed improvement that is not proved would need "about 0 more episodes"."""
    pmdp, theta, _, baseline = grid
    found = improve(pmdp, logged(pmdp, theta, GAIN, baseline, 10, 0), GAIN, baseline)
    ends = {f"{name}{side}": 0.0 for name in ("", "baseline ", "gain ") for side in ("lower", "upper")}
    less = stated(found, {"claim": ends | {"gain lower": -1.0}})
    assert found.improves and found.more_episodes == 0 and not less.improves and less.more_episodes > 0
    assert stated(found, {"claim": ends | {"gain lower": found.lower}}).more_episodes == 0


def test_a_stored_improvement_says_how_it_is_proved(grid):
    pmdp, theta, _, baseline = grid
    found = improve(pmdp, logged(pmdp, theta, GAIN, baseline, 10, 0), GAIN, baseline)
    ends = {f"{name}{side}": 0.0 for name in ("", "baseline ", "gain ") for side in ("lower", "upper")}
    assert stated(found, {"claim": ends, "gain lower": {"functions": []}}).method == "a common parameter"
    assert stated(found, {"claim": ends, "gain lower": None}).method == "two certificates"


def test_the_command_says_by_its_status_whether_there_is_an_improvement(tmp_path, capsys, monkeypatch):
    make_worlds_small(monkeypatch)
    world = rpl_envs.benchmark("Aircraft-20x10")
    pmdp, theta = world.pmdp, np.asarray(world.theta)
    best = solve_at(pmdp, theta, world.objective).policy
    best.to_table(pmdp, tmp_path / "best.csv")
    Policy.uniform(pmdp).to_table(pmdp, tmp_path / "uniform.csv")
    log = tmp_path / "log.csv"
    simulate_log(log, pmdp, theta, episodes=60, max_steps=100, stop=world.objective.resolve(pmdp).decided)
    command = ["improve", "rpl/Aircraft-20x10-v0", "--data", str(log), "--json", "--baseline"]
    assert main([*command, str(tmp_path / "uniform.csv"), "--policy-file", str(tmp_path / "better.csv")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["improves"] and found["lower"] > 0.0 and (tmp_path / "better.csv").is_file()
    assert main([*command, str(tmp_path / "best.csv")]) == 1
    assert json.loads(capsys.readouterr().out)["improves"] is False
    assert main([*command, "log"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["method"] == RETURNS
    assert main([*command, str(tmp_path / "best.csv"), "--returns", "0", "1"]) == 2
    assert main(["improve", "rpl/Aircraft-20x10-v0", "--episodes", "5"]) == 2
    assert main([*command, "frequency"]) == 2
    assert "none of log, frequencies and FILE" in capsys.readouterr().out


def test_an_improvement_is_stored_proved_and_verified_by_a_stranger(tmp_path, capsys):
    """The file, its proof, another log, other numbers, another baseline; an unknown baseline needs the log."""
    model = tmp_path / "coins.prism"
    model.write_text(COINS)
    model.with_suffix(".props").write_text('Pmax=? [ F "won" ];')
    pmdp, _ = prism.load(model).objective()
    Policy.uniform(pmdp).to_table(pmdp, tmp_path / "uniform.csv")
    log, other, file = (str(tmp_path / name) for name in ("log.csv", "other.csv", "gain.json"))
    for path, seed in ((log, 0), (other, 1)):
        simulate_log(path, pmdp, {"p": 0.9, "q": 0.2}, episodes=300, max_steps=5, seed=seed)
    command = ["improve", "--model", str(model), "--data", log, "--output", file, "--baseline"]
    assert main([*command, str(tmp_path / "uniform.csv")]) == 0
    assert "proved: rpl_agent/guarantee/checker.py" in capsys.readouterr().out
    assert main(["certify", file, "--verify"]) == 0
    said = capsys.readouterr().out
    assert "it is better than the baseline by at least" in said and "baseline: a policy, SHA-256" in said
    assert main(["certify", file, "--verify", "--data", log]) == 0 and "with your" in capsys.readouterr().out
    assert main(["certify", file, "--verify", "--data", other]) == 1
    stored = json.loads((tmp_path / "gain.json").read_text())
    for change in ({"lower": stored["lower"] + 0.01}, {"baseline": stored["policy"]}, {"value": [0.9, 1.0]}):
        lie = {key: part for key, part in (stored | change).items() if key not in ("improves", "sentence")}
        (tmp_path / "gain.json").write_text(json.dumps(lie))
        capsys.readouterr()
        assert main(["certify", file, "--verify"]) == 1, change
    assert main([*command, "log"]) in (0, 1)
    assert "NOTE: the checker does not cover the returns of a log" in capsys.readouterr().out
    assert main(["certify", file, "--verify"]) == 1
    said = capsys.readouterr().out
    assert "add --data LOG" in said and "not recomputed" in said and "nan" not in said
    assert main(["certify", file, "--verify", "--data", log]) == 0
    said = capsys.readouterr().out
    assert "the baseline is unknown: from the returns of the log" in said
    assert "no proof: the checker does not cover the returns of a log, which bound the unknown baseline" in said


def test_an_improvement_by_action_frequencies_is_stored_and_recomputed_by_a_stranger(tmp_path, capsys):
    """From the file's own data and from the log; the checker, which does not cover it, says so."""
    model, log, file = tmp_path / "coins.prism", str(tmp_path / "log.csv"), str(tmp_path / "gain.json")
    model.write_text(COINS)
    model.with_suffix(".props").write_text('Pmax=? [ F "won" ];')
    pmdp, objective = prism.load(model).objective()
    used = softened(pmdp, solve_at(pmdp, np.array([0.9, 0.2]), objective).policy, 0.8)
    simulate_log(log, pmdp, {"p": 0.9, "q": 0.2}, episodes=300, max_steps=5, policy=used)
    command = ["improve", "--model", str(model), "--data", log, "--baseline", "frequencies", "--output", file]
    assert main(command) == 0
    assert "NOTE: the checker does not cover action frequencies" in capsys.readouterr().out
    for own in ([], ["--data", log]):
        assert main(["certify", file, "--verify", *own]) == 0
        said = capsys.readouterr().out
        assert "the baseline is unknown: its action frequencies are unknowns too" in said
        assert "no proof: the checker does not cover action frequencies" in said
    assert checker.main([str(tmp_path / "gain.proof.json.gz")]) == 1
    assert "refused: the checker does not cover action frequencies" in capsys.readouterr().out
    stored = json.loads((tmp_path / "gain.json").read_text())
    returned = {"known": "unknown: from the returns of the log", "returns": [0.0, 1.0]}
    for change, said in (
        ({"lower": stored["lower"] + 0.01}, "the lower bound of the improvement"),
        ({"known": "its policy is given"}, "says of the baseline: its policy is given"),
        (returned, "add --data LOG"),
    ):
        lie = {key: part for key, part in (stored | change).items() if key not in ("improves", "sentence")}
        (tmp_path / "gain.json").write_text(json.dumps(lie))
        assert main(["certify", file, "--verify"]) == 1
        assert said in capsys.readouterr().out


def test_an_unknown_baseline_by_its_action_frequencies():
    """The log says how often it took which action; bounds hold at once, and tighten with the data."""
    pmdp, theta, rng = coin_model(), np.array([0.7, 0.4]), np.random.default_rng(3)
    best = solve_at(pmdp, theta, WON).policy
    behaviour = softened(pmdp, best, 0.6)
    truth = [true_value(pmdp, WON, policy, theta) for policy in (best, behaviour)]
    widths = []
    for episodes in (100, 3_000):
        counts, _ = coin_counts(pmdp, theta, behaviour, episodes, rng)
        found = improve(pmdp, counts, WON, "frequencies", best)
        assert found.baseline_value[0] <= truth[1] <= found.baseline_value[1] and found.baseline is None
        assert found.lower <= truth[0] - truth[1] <= found.upper and "frequencies" in str(found)
        widths.append(found.baseline_value[1] - found.baseline_value[0])
    assert widths[1] < 0.4 * widths[0] and found.improves
    own = improve(pmdp, counts, WON, "frequencies")
    assert own.policy.as_weights(pmdp).shape == (pmdp.num_rows,) and own.improves
    with pytest.raises(ModelError, match="without a discount"):
        improve(pmdp, counts, replace(WON, horizon=3), "frequencies")


def test_frequencies_of_three_actions_are_binary_choices():
    def actions(s):
        return {k: {s + 1: f"p{k}", "out": f"1 - p{k}"} for k in "abc"} if s in (0, 1) else {"stay": {s: 1}}

    pmdp = build(0, actions, domain=["pa", "pb", "pc"], labels={"won": lambda s: s == 2})
    counts = Counts(pmdp)
    for state in (0, 1):
        for action, n in ((0, 500), (1, 300), (2, 200)):
            s = pmdp.state_index(state)
            counts.add(s, action, pmdp.state_index(state + 1), n * 8 // 10)
            counts.add(s, action, pmdp.state_index("out"), n * 2 // 10)
    larger = logged_baseline(pmdp, counts, WON)
    assert larger.pmdp.num_parameters == 3 + 2 * 2 and larger.counts.total == 2 * (1000 + 1000 + 500)
    weights = np.zeros(pmdp.num_rows)
    for state in (0, 1):
        first = pmdp.state_ptr[pmdp.state_index(state)]
        weights[first : first + 3] = (0.5, 0.3, 0.2)
    for state in (2, "out"):
        weights[pmdp.state_ptr[pmdp.state_index(state)]] = 1.0
    theta = np.array([0.8, 0.7, 0.6])
    logged = [*theta]
    for name in larger.pmdp.table.parameters[3:]:  # the first action with .5, then the second with .3 of the rest
        row = int(name.removeprefix("logged_"))
        logged.append(0.5 if row == pmdp.state_ptr[pmdp.row_state[row]] else 0.6)
    behaviour = Policy.of_weights(pmdp, weights)
    expected = true_value(pmdp, WON, behaviour, theta)
    assert true_value(larger.pmdp, WON, larger.policy, np.array(logged)) == pytest.approx(expected)
    lifted = true_value(larger.pmdp, WON, larger.lifted(behaviour), np.array(logged))
    assert lifted == pytest.approx(expected)
