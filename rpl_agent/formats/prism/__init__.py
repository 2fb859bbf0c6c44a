"""The PRISM language: models and properties in.

>>> from rpl_agent.formats import prism
>>> model = prism.load("model.prism", parameters={"p": (0.1, 0.9)})
>>> pmdp, objective = model.objective('Pmax=? [F "goal"]')
"""

from rpl_agent.formats.prism.answers import Answer, RegionAnswer, answer, answer_region
from rpl_agent.formats.prism.language.grammar import Position, PrismError
from rpl_agent.formats.prism.properties.queries import Query
from rpl_agent.formats.prism.reader import FIRST, PrismModel, load, load_properties, loads
