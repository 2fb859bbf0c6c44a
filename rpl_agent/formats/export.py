"""Write a learned uncertain model or a policy; the ending of the file name decides the format.

========== ==========================================================================================
``.drn``   Storm's explicit format, value type double-interval (double if every bound is a point)
``.umb``   the unified Markov binary format, through the package ``umbi``
``.csv``   policy: one line per state and action with positive probability
``.json``  policy, with the model's hash
``.strat`` policy as a PRISM strategy: ``(values of the variables):action``
========== ==========================================================================================

Bounds are written as they are. A lower bound 0 means that nature may delete the transition; Storm refuses such
models, and replacing 0 by a small number would be unsound, so that is not done here.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rpl_agent.errors import ModelError
from rpl_agent.formats.explicit import ExplicitModel
from rpl_agent.model.objective import Objective
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.model.policy import Policy


def write_uncertain(
    path: str | Path, pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray, objective: Objective | None = None
) -> list[Path]:
    """Write the interval MDP with bounds (F,) per expression; returns the files written.

    The objective's target and avoid labels are part of the file like all labels; the property itself is written
    beside it (``.props``), with the names as the file has them.
    """
    from rpl_agent.formats.drn import write_drn
    from rpl_agent.formats.umb import write_umb

    path = Path(path)
    writers = {".drn": write_drn, ".umb": write_umb}
    if path.suffix not in writers:
        raise ModelError(f"{path.name}: the ending must be one of {', '.join(writers)}")
    model = ExplicitModel(pmdp, lower, upper)
    written = writers[path.suffix](path, model)
    if objective is not None:
        properties = path.with_suffix(".props")
        properties.write_text(model.property_text(objective) + "\n", encoding="utf-8")
        written.append(properties)
    return written


def write_policy(path: str | Path, pmdp: ParametricMDP, policy: Policy) -> Path:
    """Write a policy as ``.csv``, ``.json`` or ``.strat``."""
    from rpl_agent.formats import policies

    path = Path(path)
    writers = {".csv": policies.write_csv, ".json": policies.write_json, ".strat": policies.write_strategy}
    if path.suffix not in writers:
        raise ModelError(f"{path.name}: the ending must be one of {', '.join(writers)}")
    policy.check(pmdp)
    writers[path.suffix](path, pmdp, policy)
    return path
