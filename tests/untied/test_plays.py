"""Plays of a fixed policy beside untied models: planned, counted, bounded, stored, verified."""

from __future__ import annotations

import json
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

from rpl_agent import Certificate, Config, Objective, RPLAgent, build_noise
from rpl_agent.agent.runs import verify_run
from rpl_agent.agent.sampling.experience import SampledBatch
from rpl_agent.agent.sampling.incumbent import Incumbent
from rpl_agent.agent.sampling.judge import LARGEST_SHARE, LEAST_SHARE, JudgedPlays
from rpl_agent.core.model import Policy
from rpl_agent.core.model.building.noise import chances_of
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee.untied.plays import PlayedBound, grouped, policy_share
from rpl_agent.guarantee.verify import verify
from tests.untied.worlds import TableWorld

pytestmark = pytest.mark.short_runs
GOAL = "maximise discounted return, gamma 0.9"


def agent(seed: int = 0, **options) -> RPLAgent:
    return RPLAgent(TableWorld(1), objective=GOAL, config=Config(delta=0.1), seed=seed, **options)


@pytest.fixture(scope="module")
def learned() -> RPLAgent:
    """An agent whose certificate rests on plays."""
    return agent().learn(budget=600)


def truth(found: RPLAgent) -> np.ndarray:
    """The parameters of the table's model: each is the probability of an outcome of its row."""
    pmdp, table = found.pmdp, TableWorld(1).P
    theta = np.zeros(pmdp.num_parameters)
    for k, name in enumerate(pmdp.table.parameters):
        _, s, a, outcome = name.split("_")
        theta[k] = table[int(s)][int(a)][int(outcome)][0]
    return theta


def test_plays_bound_the_policy_better_than_rows_do_and_the_certificate_says_so():
    found = agent()
    found.learn(budget=1_500)
    certificate = found.certificate
    assert certificate.plays is not None and certificate.basis == "rows"
    assert certificate.lower == certificate.plays.bound() > certificate.momentary_lower
    own = solve_at(found.pmdp, truth(found), found.objective, policy=certificate.policy).middle
    best = solve_at(found.pmdp, truth(found), found.objective).middle
    assert certificate.lower <= own <= best + 1e-9 and best <= certificate.upper
    assert certificate.regret >= best - own - 1e-9
    assert f"{certificate.plays.plays:,} plays of it" in str(certificate)
    plays, since = len(found.session.witness.worth), found.session.witness.since
    assert LEAST_SHARE / 2 <= plays / (1_500 - since) <= (1 + LARGEST_SHARE) / 2
    counts, earlier = found.session.experience.counts, found.session.earlier
    assert verify(certificate, found.pmdp, counts, earlier).problems == []
    assert Certificate.from_json(certificate.to_json()).plays == certificate.plays


def test_plays_go_on_when_episodes_are_counted_anew(tmp_path):
    """None was made until the new counter had reached the old one."""
    found = agent().learn(budget=600)
    before, witness = len(found.session.witness.worth), found.session.witness
    number = witness.number
    found.learn(budget=60, reset_num_timesteps=True)
    assert witness.number == number and len(witness.worth) >= before + LEAST_SHARE * 60 / 2
    assert witness.since < 0 < witness.mark <= 2 * 600
    found.save(tmp_path / "a")
    again = RPLAgent.load(tmp_path / "a.zip", TableWorld(1))
    assert again.session.witness.since == witness.since and again.num_episodes == 60
    counts, earlier = found.session.experience.counts, found.session.earlier
    assert verify(found.certificate, found.pmdp, counts, earlier).problems == []


@pytest.mark.parametrize(
    "forge",
    [
        lambda p: replace(p, share=10 * p.share),
        lambda p: replace(p, low=p.low + 0.1, numbers=tuple(max(x, p.low + 0.1) for x in p.numbers)),
        lambda p: replace(p, number=0),
        lambda p: replace(p, numbers=tuple(x + 1e3 for x in p.numbers)),
    ],
)
def test_plays_with_another_share_range_or_number_are_refused(forge, learned):
    certificate, counts = learned.certificate, learned.session.experience.counts
    assert certificate.plays is not None
    forged = replace(certificate, plays=forge(certificate.plays))
    assert verify(forged, learned.pmdp, counts, learned.session.earlier).problems


def test_a_run_is_verified_with_its_own_plays(tmp_path):
    agent().learn(budget=300, folder=tmp_path / "run")
    assert verify_run(tmp_path / "run")["verified"]
    path = tmp_path / "run" / "certificate.json"
    told = json.loads(path.read_text())
    told["plays"]["numbers"] = [min(x + 0.1, told["plays"]["high"]) for x in told["plays"]["numbers"]]
    path.write_text(json.dumps(told))
    assert "the plays of the policy are not those of the run" in verify_run(tmp_path / "run")["problems"]


def test_bounds_hold_in_many_runs_at_every_look(sized):
    missed = 0
    for seed in range(runs := sized(6, 25)):
        found = agent(seed)
        theta = truth(found)
        best = solve_at(found.pmdp, theta, found.objective).middle
        wrong = False
        for _ in range(3):
            found.learn(budget=100, reset_num_timesteps=False)
            certificate = found.certificate
            own = solve_at(found.pmdp, theta, found.objective, policy=certificate.policy).middle
            wrong |= not certificate.lower <= own + 1e-9 or not best <= certificate.upper + 1e-9
        missed += wrong
    assert missed <= (1 if runs == 6 else 5)  # each with probability at most 0.1: more in one of 25 trials


class Stairs(gym.Env):
    """Begins on one of some stairs; action 1 goes down, and the ground pays."""

    observation_space, action_space, spec = gym.spaces.Discrete(17), gym.spaces.Discrete(2), None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = int(self.np_random.integers(1, 17))
        return self.at, {}

    def step(self, action):
        self.at -= int(action)
        return self.at, float(self.at == 0), self.at == 0, False, {}


def test_where_the_start_alone_is_unknown_all_episodes_from_the_first_mark_on_play_the_policy():
    """The draw of a start is data, so it calls for updates; nobody else would play for more of it."""
    noise = {"start": list(range(1, 17))}
    model = build_noise(
        dict(chances_of(noise)[0]["start"]),
        lambda s: [0] if s == 0 else [0, 1],
        noise=noise,
        key=lambda s, a: None,
        effect=lambda s, a, label: s - a,
        labels={"ground": lambda s: s == 0},
        rewards={"reward": lambda s, a, after: float(s == 1 and after == 0)},
    )
    goal = Objective.discounted("reward", 0.9, target="ground")
    found = RPLAgent(Stairs(), pmdp=model, objective=goal, config=Config(delta=0.1), seed=0)
    found.learn(budget=300, log_interval=300)
    record, certificate = found.session.witness, found.certificate
    assert len(record.worth) == 300 - record.since >= 200
    assert certificate.plays is not None and certificate.lower == certificate.plays.bound()


@pytest.mark.parametrize("earned, kept", [("high", True), ("low", False)])
def test_a_policy_is_kept_for_what_its_plays_earned_whatever_the_model_says(earned, kept):
    found = agent()
    found.learn(budget=100, log_interval=100)
    judge, record, counts = found.session.judge, found.session.witness, found.session.experience.counts
    poor = record.policy = Policy.deterministic(found.pmdp.state_ptr[1:] - 1)
    record.worth = [getattr(judge.bound(record), earned)] * 20_000
    judge.consider(record, counts, 10**6, found.session.target)
    assert (record.policy is poor) == kept


def test_a_policy_gives_way_to_a_better_one_only_while_enough_plays_are_to_come():
    present = Incumbent.of(np.array([0.0, 1.0] * 50), bound=0.3)
    kept = [not present.gives_way(0.6, own=0.5, coming=coming) for coming in (10.0, 100.0, 1_000.0, 10_000.0)]
    assert kept == sorted(kept, reverse=True) and kept[0] and not kept[-1]
    assert not present.gives_way(0.5, own=0.5, coming=10_000.0)
    assert present.part_of_gap(0.6) == pytest.approx(0.25) and present.part_of_gap(-0.1) == 1.0


def test_plays_that_were_given_up_count_as_the_worst():
    """A planted mistake of Theorem 2: an episode that is dropped because it is long would bias the mean."""
    found = agent()
    judge, record = found.session.judge, JudgedPlays(policy=Policy.uniform(found.pmdp), number=1)
    judge.plays = True
    assert judge.turn(record, 1)[0] is not None
    judge.add(record, SampledBatch(1, 3, [1.0], [3], [0.81], [False], begun=2))
    assert record.worth == [0.81, 0.0]


def test_only_plays_that_were_planned_count():
    found = agent()
    judge, record = found.session.judge, JudgedPlays(policy=Policy.uniform(found.pmdp), number=1, worth=[0.5] * 9)
    judge.plays = True
    assert judge.turn(record, 10)[0] is None
    judge.add(record, SampledBatch(1, 3, [1.0], [3], [0.81], [False], begun=1))
    assert record.worth == [0.5] * 9


def test_shares_of_policies_sum_to_at_most_the_whole_and_many_numbers_move_outward():
    assert sum(policy_share(0.02, j) for j in range(1, 5_000)) <= 0.02
    numbers = np.random.default_rng(0).random(20_000)
    for upward in (False, True):
        values, counts = grouped(numbers, 0.0, 1.0, upward)
        moved = np.sort(np.repeat(values, counts))
        assert len(values) < 17_000 and sum(counts) == 20_000
        assert (moved >= np.sort(numbers)).all() if upward else (moved <= np.sort(numbers)).all()
    bound = PlayedBound((0.0, 1.0), (3, 97), 0.0, 1.0, 1, False, 0.05)
    assert 0.8 < bound.bound() < 0.97


def test_a_saved_run_goes_on_with_its_plays(tmp_path):
    found = agent()
    found.learn(budget=300)
    found.save(tmp_path / "run")
    again = RPLAgent.load(tmp_path / "run", TableWorld(1))
    assert again.session.witness.worth == found.session.witness.worth
    assert again.session.witness.number == found.session.witness.number
    assert again.certificate.plays == found.certificate.plays


def test_plays_that_exclude_the_model_refute_it():
    found = agent()
    found.learn(budget=300)
    record = found.session.witness
    record.worth = [found.session.judge.bound(record).high] * 3_000
    with pytest.warns(match="bounds come from"):
        certificate = found.certify()
    assert certificate.refuted and certificate.plays is None
