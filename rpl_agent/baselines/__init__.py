"""Agents to compare with, behind the surface of our own: learn, predict, save, load."""

from rpl_agent.baselines.base import Baseline
from rpl_agent.baselines.certainty_equivalence import CertaintyEquivalence
from rpl_agent.baselines.interval_learning import IntervalLearning
from rpl_agent.baselines.psrl import PSRL
from rpl_agent.baselines.q_learning import QLearning
from rpl_agent.baselines.rmax import RMax
from rpl_agent.baselines.ucbvi import UCBVI
from rpl_agent.baselines.ucrl2 import UCRL2
