"""Train an agent for the aircraft world, watch it learn, and end with a certified policy.

    python examples/train_aircraft.py --budget 5000 --log-dir logs
    tensorboard --logdir logs            # the Custom Scalars tab shows the guarantee as a band

Ctrl-C ends the run early: what was learned is certified and saved. Run the same command with --resume RUN to continue.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gymnasium as gym

import rpl_envs
from rpl_agent import OracleCallback, RPLAgent

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--budget", type=int, default=5_000, help="episodes")
parser.add_argument("--log-dir", default="logs")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--resume", metavar="RUN", help="a run folder to go on with")
arguments = parser.parse_args()

env = gym.make("rpl/Aircraft-20x10-v0")

# The agent knows the model's structure, never its parameters. The oracle is given the truth to compare with.
world = rpl_envs.benchmark("rpl/Aircraft-20x10-v0")
oracle = OracleCallback(world.theta)

if arguments.resume:
    run = Path(arguments.resume)
    agent = RPLAgent.load(run / "checkpoint.zip", env, verbose=1)
    agent.run_folder = run
    agent.resume(oracle, progress_bar=True)
else:
    agent = RPLAgent(
        confidence="likelihood",  # valid whenever you look, under any sampling
        relaxation="rectangular",  # the tightest of the paper's relaxations
        delta=1e-3,
        tensorboard_log=arguments.log_dir,
        seed=arguments.seed,
        verbose=1,
    )
    agent.learn(env, budget=arguments.budget, callback=oracle, progress_bar=True, tb_log_name="aircraft")

print(agent.certificate)

# Act with the certified policy.
observation, _ = env.reset(seed=1)
over = False
while not over:
    action, _ = agent.predict(observation)
    observation, reward, terminated, truncated, _ = env.step(int(action))
    over = terminated or truncated
print("one episode with the certified policy:", "arrived" if reward else "did not arrive")
print(f"run folder: {agent.run_folder}\nsee it with: tensorboard --logdir {arguments.log_dir}")
