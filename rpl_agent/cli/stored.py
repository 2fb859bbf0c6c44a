"""A run folder in place of ID or --model: what the run learned, by the method it was made with."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rpl_agent.cli.common import config_of, source_defaults
from rpl_agent.errors import DataError, ModelError

if TYPE_CHECKING:
    import numpy as np

    from rpl_agent.agent import RPLAgent

#: What `add_source` says about ID where a run folder will do.
ID_OR_RUN = "a registered world, e.g. rpl/Aircraft-20x10-v0 (see rpl worlds), or a run folder, e.g. logs/demo"


def run_of(arguments: argparse.Namespace) -> RPLAgent | None:
    """The agent of the run folder that stands for ID, or None where ID is none.

    A run has its own model, data and method; options that say otherwise are refused, not ignored.
    """
    folder = arguments.id and Path(arguments.id)
    if not folder or not folder.is_dir():
        return None
    defaults = {name: value for name, value in source_defaults().items() if name != "id"}
    given = [name for name, default in defaults.items() if getattr(arguments, name) != default]
    given += [name for name in ("episodes", "data", "quarantine") if getattr(arguments, name, None) is not None]
    if hasattr(arguments, "confidence"):
        from rpl_agent.pipeline import Config

        asked, usual = config_of(arguments), Config()
        fields = ("confidence", "relaxation", "delta", "precision")
        given += [name for name in fields if getattr(asked, name) != getattr(usual, name)]
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ModelError(f"{folder} is a run with its own model, data and method: {options} cannot be given with it")
    from rpl_agent.agent.runs import load_run

    return load_run(folder)


def true_parameters(folder: str) -> np.ndarray | None:
    """The truth of a run's simulator, for a mark in a picture; None where nobody stored it."""
    from rpl_agent.cli.training import stored_source

    try:
        return stored_source(folder).theta
    except DataError:  # made in Python with an environment that has no id
        return None
