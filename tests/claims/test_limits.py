"""Limits: policies that keep them, bounds on all that do, dead ends, and the doors that lead there."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.improvement_worlds import TRUTH, cliff_grid
from rpl_agent import Certificate, Counts, RPLAgent, certify
from rpl_agent.cli import main
from rpl_agent.core.errors import ModelError
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Limit, Objective, Policy, Sense, build
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee.claims.combined import CombinedModel
from rpl_agent.guarantee.claims.occupancy import OccupancyProgram
from rpl_agent.guarantee.shown import true_value
from rpl_agent.guarantee.verify import verify

pytestmark = pytest.mark.short_runs

STEPS = "minimise steps until done"
FALLEN = "probability of fallen <= 0.05"


@pytest.fixture(scope="module")
def grid():
    pmdp = cliff_grid()
    return pmdp, np.array([TRUTH[name] for name in pmdp.table.parameters])


@pytest.fixture(scope="module")
def certified(grid):
    """Counts of 500 episodes, and what is certified from them within the limit."""
    pmdp, theta = grid
    counts = uniform_counts(pmdp, Objective.parse(STEPS), theta, 500, 1000, 0)
    return counts, certify(pmdp, counts, STEPS, subject_to=[FALLEN])


def optimum(pmdp, theta, objective):
    """The best value within limits at known parameters, by the linear program."""
    combined = CombinedModel(pmdp, [objective.free, *(limit.objective for limit in objective.limits)])
    upward = np.array([limit.upward for limit in objective.limits])
    program = OccupancyProgram(combined, theta, objective.sense, upward)
    thresholds = np.array([limit.threshold for limit in objective.limits])
    return program.solve(thresholds, solve_at(pmdp, theta, objective.free).policy)


@pytest.mark.parametrize(
    "text, shown",
    [
        ("probability of fallen <= 0.05", 'P<=0.05 [ F "fallen" ]'),
        ("the probability of goal avoiding trap at least 0.9", 'P>=0.9 [ !"trap" U "goal" ]'),
        ("fuel until done ≤ 3", 'R{"fuel"}<=3 [ F "done" ]'),
        ("discounted fuel, gamma 0.9 >= 1e-1", 'R{"fuel"}>=0.1 [ C ] discount 0.9'),
    ],
)
def test_limits_are_read_in_words(text, shown):
    assert Limit.parse(text).describe() == shown


def test_limits_are_shown_as_they_are_kept():
    """A limit of 0.1234564 was shown as 0.123456: a stricter one, of which nothing was certified."""
    for threshold, shown in (
        (0.1234564, "0.1234564"),
        (1e-7, "1e-07"),
        (1234567.0, "1234567"),
        (3, "3"),
        (0.05, "0.05"),
    ):
        assert Limit(Objective.reach("fallen", sense=Sense.MIN), threshold).describe().startswith(f"P<={shown} [")


def test_objectives_name_their_limits():
    goal = Objective.parse(
        f"{STEPS}, subject to {FALLEN} and discounted fuel, gamma 0.9 >= 3, probability of goal >= .5"
    )
    assert [limit.threshold for limit in goal.limits] == [0.05, 3.0, 0.5]
    assert goal.describe().startswith('multi(R{"steps"}min=? [ F "done" ], P<=0.05 [ F "fallen" ], R{"fuel"}>=3')
    assert goal.free == Objective.parse(STEPS) and Objective.parse(STEPS).subject_to(*goal.limits) == goal
    for text in ("fallen", "probability of fallen < 0.05", "probability of fallen <= nan", "<= 3"):
        with pytest.raises(ModelError, match="not understood"):
            Limit.parse(text)


def test_nothing_else_answers_an_objective_with_limits(grid):
    """An answer without the limits would be one to another question."""
    pmdp, theta = grid
    goal = Objective.parse(f"{STEPS} subject to {FALLEN}")
    for ask in (lambda: goal.resolve(pmdp), lambda: solve_at(pmdp, theta, goal), lambda: RPLAgent(pmdp=pmdp).objective):
        with pytest.raises((ModelError, TypeError)):
            ask()


def test_the_program_finds_the_randomised_optimum():
    """Risky wins with .9 and crashes else, safe wins with .5 and never crashes: mix them until P(crash) = .05."""

    def actions(s):
        return (
            {"safe": {"won": "0.5", "lost": "0.5"}, "risky": {"won": "p", "crash": "1 - p"}}
            if s == 0
            else {"stay": {s: 1}}
        )

    labels = {name: (lambda s, name=name: s == name) for name in ("won", "lost", "crash")}
    pmdp = build(0, actions, domain=["p"], labels=labels)
    goal = Objective.parse("maximise probability of won subject to probability of crash <= 0.05")
    found = optimum(pmdp, np.array([0.9]), goal)
    np.testing.assert_allclose(found.values, [0.7, 0.05], atol=1e-7)  # half of the plays are risky
    np.testing.assert_allclose(found.policy.weights[:2], [0.5, 0.5], atol=1e-6)
    assert found.multipliers == pytest.approx([4.0], abs=1e-5)
    counts = Counts(pmdp)
    for k in range(4000):
        counts.add(0, 1, pmdp.state_index("crash" if k % 10 == 0 else "won"))
    certificate = certify(pmdp, counts, goal)
    assert certificate.keeps_limits and 0.6 < certificate.lower <= 0.7 <= certificate.upper < 0.8
    assert certificate.limits[0].upper <= 0.05 and not certificate.policy.is_deterministic
    again = Certificate.from_json(certificate.to_json())
    assert again.limits == certificate.limits and again.objective == goal
    assert "keeps P<=0.05" in str(certificate) and json.loads(certificate.to_json())["limits"][0]["kept"] is True


def test_the_cliff_grid_within_its_limit(grid, certified):
    pmdp, theta = grid
    goal = Objective.parse(f"{STEPS} subject to {FALLEN}")
    best = optimum(pmdp, theta, goal)
    np.testing.assert_allclose(best.values, [13.706, 0.05], atol=1e-3)
    assert ((best.policy.weights > 0) & (best.policy.weights < 1)).sum() == 2  # randomised in one state
    later = certify(pmdp, uniform_counts(pmdp, goal.free, theta, 2000, 1000, 0), STEPS, subject_to=[FALLEN])
    for found, widest in ((certified[1], 2.7), (later, 1.0)):
        fall, steps = (true_value(pmdp, o, found.policy, theta) for o in (goal.limits[0].objective, goal.free))
        assert found.keeps_limits and found.limits[0].lower <= fall <= found.limits[0].upper <= 0.05
        assert found.lower <= best.values[0] <= steps <= found.upper and found.gap < widest


def test_dead_ends_are_said(grid, certified):
    pmdp, theta = grid
    never = certify(pmdp, certified[0], STEPS, subject_to=["steps until done <= 0.5"])
    assert not never.limits[0].possible and "no policy keeps" in never.sentence and not never.keeps_limits
    assert "within the limits" not in str(never) and "that keeps every limit" not in str(never)  # there is none
    assert never.limits[0].best > 0.5
    own = certify(pmdp, certified[0], STEPS, policy=never.policy, bets=False)  # and nothing but its own value
    assert never.evaluated and (never.lower, never.upper) == (own.lower, own.upper) and never.regret == np.inf
    few = uniform_counts(pmdp, Objective.parse(STEPS), theta, 20, 1000, 0)
    early = certify(pmdp, few, STEPS, subject_to=["steps until done <= 1.22"])
    claim = early.limits[0]
    assert claim.possible and claim.kept is None and claim.more_episodes > 0 and "more episodes" in claim.sentence


def test_a_given_policy_is_judged(grid):
    pmdp, theta = grid
    counts = uniform_counts(pmdp, Objective.parse(STEPS), theta, 2000, 1000, 0)
    found = certify(pmdp, counts, STEPS, policy=Policy.uniform(pmdp), subject_to=[FALLEN])
    fall = true_value(pmdp, Objective.reach("fallen"), Policy.uniform(pmdp), theta)
    assert found.evaluated and found.limits[0].kept is False and "breaks" in found.sentence
    assert found.limits[0].lower <= fall <= found.limits[0].upper
    said = str(found)
    assert "this policy's value lies in" in said and "no policy that keeps every limit" not in said


def corridor(**settings):
    """Two ways to the goal, one past a trap; one may also turn in circles for ever."""

    def actions(s):
        if s in ("goal", "trap"):
            return {"stay": {s: 1}}
        if s == 0:
            return {"wait": {0: 1}, "short": {"goal": "p", "trap": "1 - p"}, "long": {1: 1}}
        return {"back": {0: "1 - q", 1: "q"}, "on": {"goal": "0.5 + 0.5*q", "trap": "0.5 - 0.5*q"}}

    labels = {"goal": lambda s: s == "goal", "trap": lambda s: s == "trap", "seen": lambda s: s == 1}
    labels["over"] = lambda s: isinstance(s, str)
    rewards = {"time": lambda s, a: 0.0 if isinstance(s, str) else 1.0, "toll": lambda s, a: 2.0 if a == "on" else 0.0}
    return build(0, actions, domain=["p", "q"], labels=labels, rewards=rewards, **settings)


@pytest.mark.parametrize(
    "text",
    [
        "maximise probability of goal subject to probability of trap <= 0.3",
        "minimise probability of trap subject to probability of goal >= 0.3",
        "maximise probability of goal subject to probability of trap <= 0.4 and toll until over <= 1.5",
        "minimise discounted time, gamma 0.9 subject to discounted toll, gamma 0.9 <= 1",
        "maximise discounted toll, gamma 0.9 subject to discounted time, gamma 0.9 <= 3",
    ],
)
def test_weak_duality_bounds_the_optimum_at_the_truth(text, sized):
    """All statements at once, for parameters that are drawn: the optimum within limits is on its side of the bound."""
    pmdp, goal, rng, close = corridor(), Objective.parse(text), np.random.default_rng(3), 0
    for _ in range(runs := sized(2, 4)):
        theta = rng.uniform(0.5, 0.8, 2)
        best = optimum(pmdp, theta, goal)
        counts = uniform_counts(pmdp, goal.free, theta, 3000, 50, int(rng.integers(1000)))
        found = certify(pmdp, counts, goal, delta=0.01)
        value = true_value(pmdp, goal.free, found.policy, theta)
        assert found.lower - 1e-6 <= value <= found.upper + 1e-6 or not found.keeps_limits
        for claim in found.limits:
            own = true_value(pmdp, claim.limit.objective, found.policy, theta)
            assert claim.lower - 1e-6 <= own <= claim.upper + 1e-6
        if best is not None:
            far = found.upper if goal.sense is Sense.MAX else -found.lower
            reached = best.values[0] if goal.sense is Sense.MAX else -best.values[0]
            assert reached <= far + 1e-6
            close += found.keeps_limits and abs(far - reached) < 0.25 * (1.0 + abs(reached))
    assert close >= runs // 2


@pytest.mark.parametrize(
    "text, message",
    [
        ("maximise probability of goal subject to probability of seen <= 0.1", "remember"),
        ("maximise probability of goal within 5 steps subject to probability of trap <= 0.1", "horizon"),
        ("maximise probability of goal subject to discounted time, gamma 0.9 <= 3", "different discounts"),
        ("maximise probability of goal subject to probability of nowhere <= 0.1", "no label 'nowhere'"),
    ],
)
def test_what_is_not_covered_is_refused_by_name(text, message):
    pmdp = corridor()
    with pytest.raises(ModelError, match=message):
        certify(pmdp, Counts(pmdp), text)


def test_a_target_behind_a_state_to_avoid_does_not_count():
    """The trap is passed on the way to the goal, where `goal avoiding trap` is lost already."""

    def actions(s):
        return {0: {"go": {"trap": "p", "goal": "1 - p"}}, "trap": {"on": {"goal": 1}}}.get(s, {"stay": {s: 1}})

    labels = {name: (lambda s, name=name: s == name) for name in ("goal", "trap")}
    pmdp = build(0, actions, domain=["p"], labels=labels, rewards={"time": lambda s, a: float(s in (0, "trap"))})
    with pytest.raises(ModelError, match="remember"):
        certify(pmdp, Counts(pmdp), "minimise time until goal subject to probability of goal avoiding trap >= 0.5")


@pytest.mark.parametrize("runs", [8, pytest.param(300, marks=pytest.mark.nightly)])
def test_all_statements_hold_at_once(runs):
    delta, rng, missed = 0.2, np.random.default_rng(11), 0
    pmdp, goal = corridor(), Objective.parse("maximise probability of goal subject to probability of trap <= 0.2")
    for _ in range(runs):
        theta = rng.uniform(0.2, 0.9, 2)
        counts = uniform_counts(pmdp, goal.free, theta, 200, 50, int(rng.integers(10**6)))
        found, best = certify(pmdp, counts, goal, delta=delta), optimum(pmdp, theta, goal)
        value = true_value(pmdp, goal.free, found.policy, theta)
        trap = true_value(pmdp, goal.limits[0].objective, found.policy, theta)
        holds = found.limits[0].lower - 1e-6 <= trap <= found.limits[0].upper + 1e-6
        holds &= found.lower - 1e-6 <= value and (best is None or best.values[0] <= found.upper + 1e-6)
        holds &= not (found.keeps_limits and trap > 0.2 + 1e-6) and (found.limits[0].possible or best is None)
        missed += not holds
    assert missed <= delta * runs / 2


def test_certificates_with_limits_are_verified(grid, certified):
    pmdp, (counts, certificate) = grid[0], certified
    assert not verify(certificate, pmdp, counts).problems
    (claim,) = certificate.limits
    tampered = {
        "steps": replace(certificate, upper=certificate.upper - 0.01),
        "others": replace(certificate, lower=certificate.lower + 0.01),
        "falls": replace(certificate, limits=(replace(claim, upper=claim.upper - 0.001),)),
        "kept": replace(certificate, limits=(replace(claim, kept=None),)),
        "impossible": replace(certificate, limits=(replace(claim, possible=False),)),
        "best": replace(certificate, limits=(replace(claim, best=0.06, possible=False),)),
        "none": replace(certificate, limits=()),
        "policy": replace(certificate, policy=Policy.uniform(pmdp)),
        "regret": replace(certificate, regret=0.9 * certificate.regret),
        "optimal": replace(certificate, regret=0.0, optimal=True),
        "evidence": replace(certificate, log_e_value=certificate.log_e_value - 1.0),
    }
    for name, false in tampered.items():
        assert verify(false, pmdp, counts).problems, name


def test_an_agent_certifies_within_limits_and_plays_the_randomised_policy(tmp_path):
    import rpl_envs

    pmdp = cliff_grid()
    env = rpl_envs.make_own(
        pmdp, Objective.parse(STEPS), [TRUTH[n] for n in pmdp.table.parameters], max_episode_steps=500
    )
    agent = RPLAgent(env, objective=f"{STEPS} subject to probability of fallen <= 0.2", seed=0)
    agent.learn(budget=400, log_interval=200)
    certificate = agent.certificate
    assert certificate.limits and certificate.keeps_limits and certificate.basis == "windows"
    agent.save(tmp_path / "agent")
    again = RPLAgent.load(tmp_path / "agent", env)
    assert again.session.subject_to == agent.session.subject_to and again.certify().limits
    if not certificate.policy.is_deterministic:
        weights = certificate.policy.weights
        row = int(np.flatnonzero((weights > 0.01) & (weights < 0.99))[0])
        value = pmdp.row_state[row]
        seen = {int(agent.predict(value, deterministic=True)[0]) for _ in range(600)}
        assert len(seen) == 2


@pytest.mark.parametrize("threshold, status", [(0.5, 0), (0.001, 1)])
def test_the_status_says_whether_the_limits_are_kept(threshold, status, tmp_path, capsys):
    model = tmp_path / "m.prism"
    step = "[] x=0 -> 0.1:(x'=1) + 0.9:(x'=2);"
    model.write_text(f'mdp\nmodule m\n  x : [0..2];\n  {step}\nendmodule\nlabel "fell" = x=1;')
    own = ["--model", str(model), "--property", "Pmax=? [ F x=2 ]", "--episodes", "5"]
    assert main(["certify", *own, "--subject-to", f"probability of fell <= {threshold}"]) == status
    assert ("no policy keeps" in capsys.readouterr().out.lower()) == (status == 1)


def test_the_command_takes_limits(capsys):
    name, limits = "rpl/Glider-11x9-v0", ["--subject-to", "probability of goal >= 0.01"]
    status = main(["certify", name, "--episodes", "50", "--json", *limits])
    printed = json.loads(capsys.readouterr().out)
    if status == 0:
        assert printed["limits"][0]["limit"]["threshold"] == 0.01 and printed["objective"].startswith("multi(")
    else:
        assert re.search("label|discount|horizon|remember", printed["error"])
    assert main(["certify", name, "--episodes", "50", "--subject-to", "nonsense"]) == 2
