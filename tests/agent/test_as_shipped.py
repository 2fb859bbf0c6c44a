"""One run as users have it, end to end: every default of the package, a folder, a proof, its check, and `--verify`."""

from __future__ import annotations

import json

import gymnasium as gym

import rpl_envs
from rpl_agent import Certificate, RPLAgent
from rpl_agent.agent import loop, schedule
from rpl_agent.agent.evaluation import optimal_value
from rpl_agent.cli import main
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.proof import proof_path


def test_a_run_from_its_first_episode_to_its_verified_proof(tmp_path, capsys):
    assert (loop.PROVED, schedule.LOG_GROWTH) == (250_000, 1.25)  # what users get, not what other tests have
    agent = RPLAgent(seed=0).learn(gym.make("rpl/Betting-25-v0", n=5), budget=100, folder=tmp_path / "run")
    assert agent.schedule == schedule.Doubling() and agent.num_episodes == 100
    points = (tmp_path / "run" / "progress.csv").read_text().splitlines()
    assert len(points) == 1 + 13  # after 10, 12, 15, …, 93 and 100 episodes
    world = rpl_envs.benchmark("Betting-25", n=5)
    path = tmp_path / "run" / "certificate.json"
    certificate = Certificate.from_json(path)
    assert certificate.proved
    assert certificate.lower < optimal_value(world.pmdp, world.objective, world.theta) < certificate.upper
    assert checker.main([str(proof_path(path))]) == 0
    capsys.readouterr()
    assert main(["certify", str(tmp_path / "run"), "--verify", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verified"] and not found["problems"]
