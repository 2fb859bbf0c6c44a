"""Benchmark worlds of parametric MDPs as Gymnasium environments; importing registers their ids."""

from rpl_envs.benchmark import FAMILIES, INSTANCES, Benchmark, Instance, benchmark
from rpl_envs.own import make_own
from rpl_envs.pmdp_env import PMDPEnv
from rpl_envs.registration import register_all
from rpl_envs.vector_env import PMDPVectorEnv
from rpl_envs.world import DisabledAction

register_all()

__all__ = [
    "FAMILIES",
    "INSTANCES",
    "Benchmark",
    "DisabledAction",
    "Instance",
    "PMDPEnv",
    "PMDPVectorEnv",
    "benchmark",
    "make_own",
]
