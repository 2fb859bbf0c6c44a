"""Nature's choices in each row: known MDPs, intervals and regions behind one protocol."""

from rpl_agent.core.relaxations.base import CompiledRelaxation, Relaxation
from rpl_agent.core.relaxations.interval import Intervals, Point
