"""A written policy, read back."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from rpl_agent.core.model import ParametricMDP


def read_csv(path: Path, pmdp: ParametricMDP) -> np.ndarray:
    """(R,) the weights in a .csv file of a stationary policy."""
    weights = np.zeros(pmdp.num_rows)
    with open(path, encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            action = pmdp.action_names.index(line["action"])
            weights[pmdp.find_row(int(line["state"]), action)] = float(line["probability"])
    return weights
