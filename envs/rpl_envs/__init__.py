"""Benchmark worlds of parametric MDPs as Gymnasium environments; importing registers their ids."""

from rpl_envs.benchmark import INSTANCES, Benchmark, Instance, benchmark

__all__ = ["INSTANCES", "Benchmark", "Instance", "benchmark"]
