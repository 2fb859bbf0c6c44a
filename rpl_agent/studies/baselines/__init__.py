"""Agents to compare with, behind the same interface as ours: learn, predict, save, load."""

from rpl_agent.studies.baselines.base import Baseline
from rpl_agent.studies.baselines.interval_learning import IntervalLearning
from rpl_agent.studies.baselines.planning import PSRL, UCBVI, UCRL2, CertaintyEquivalence, RMax
from rpl_agent.studies.baselines.q_learning import QLearning
