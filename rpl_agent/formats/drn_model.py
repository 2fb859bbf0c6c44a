"""A DRN file as a model that properties can be asked of, like one in the PRISM language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from rpl_agent.errors import ModelError, listed
from rpl_agent.formats.drn import DrnFile
from rpl_agent.formats.normalise import TOLERANCE, hint, normalised, tell
from rpl_agent.formats.prism.explore.interval import FileBounds
from rpl_agent.formats.prism.explore.probability import Pool
from rpl_agent.formats.prism.explore.rewards import with_unknown_rewards
from rpl_agent.formats.prism.language.parser import parse_model
from rpl_agent.formats.prism.language.scope import Program
from rpl_agent.formats.prism.language.unknown import link_unknown
from rpl_agent.formats.prism.reader import PrismModel, load_properties
from rpl_agent.model.building.unknown import hide_parameters
from rpl_agent.model.building.validation import (
    expression_range,
    raise_problems,
    restrict_domain,
    row_sum,
    rows_off,
    validate,
)  # fmt: skip
from rpl_agent.model.domain import Domain
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.model.polynomial import Polynomial

#: how far doubles that stand for a distribution are off a sum of 1
ROUNDING = Fraction(1, 10**12)


def load_drn(
    path: str | Path, parameters: Mapping[str, tuple[float, float]] | None = None, *, normalise: bool = False,
    hide_rows: bool = False,
) -> PrismModel:  # fmt: skip
    """Read a DRN file, and the properties file beside it.

    Properties may use the file's labels and, as in PRISM's explicit models, the variable ``x``, the number of a state.
    Of a file with intervals the model's ``pmdp`` has one parameter per transition but the last of each row, within the
    bounds of the file; of one with numbers or polynomials it has the file's parameters.

    Parameters
    ----------
    parameters : ranges of the file's parameters; [0, 1] for those without one.
    normalise : scale rows that sum to 1 up to 1e-5 because their numbers are rounded; a warning says how many.
    hide_rows : the probabilities of a file without parameters are unknown to the learner, each row by itself.
    """
    path, file = Path(path), DrnFile(path)
    states = np.arange(file.num_states)
    truth = bounds = None
    if file.has_intervals:
        given = file.uncertain()
        pmdp, bounds = given.pmdp, FileBounds(*given.relaxation().bounds())
        if parameters or hide_rows:
            raise ModelError(f"{file.name}: a model of intervals has no parameters and no known rows")
    else:
        pmdp = _exact(file, parameters or {}, normalise)
        if hide_rows:
            hidden = hide_parameters(pmdp)
            pmdp, truth = hidden.pmdp, hidden.theta
    labels = {"init": states == pmdp.initial_state, "deadlock": np.zeros(len(states), dtype=bool), **pmdp.labels}
    pmdp = replace(pmdp, labels=labels, variables={"x": states})
    program = _program(file.type, len(states), pmdp.rewards)
    model = PrismModel(pmdp, program, path.name, bounds=bounds, truth=truth)
    beside = path.with_suffix(".props")
    if beside.is_file():
        load_properties(model, beside)
    return model


def _exact(file: DrnFile, ranges: Mapping[str, tuple[float, float]], normalise: bool) -> ParametricMDP:
    """The file with its numbers as exact fractions and its expressions as polynomials."""
    for name in ranges:
        if name not in file.parameters:
            raise ModelError(f"{file.name} has no parameter {name!r} (parameters: {listed(file.parameters)})")
    domain = Domain.box({name: ranges.get(name, (0.0, 1.0)) for name in file.parameters})
    known, named = {"0": Polynomial.constant(0)}, frozenset(file.parameters)

    def polynomial(text: str) -> Polynomial:
        known[text] = Polynomial.parse(text.replace("^", "**"))
        if strange := known[text].parameters - named:
            raise ModelError(f"{text} contains {listed(sorted(strange))}: no parameter of the file")
        return known[text]

    transitions = [low for low, _ in file.bounds]
    file.values(transitions, polynomial)
    for text in {text for texts in (*file.state_rewards, *file.row_rewards) for text in texts}:
        polynomial(text)
    pool = Pool()

    def ids(texts: Sequence[str]) -> np.ndarray:
        return pool.intern(known[text] for text in texts)

    expression_ids = ids([transitions[t] for t in file.order[1]])
    table, expression, rewards = with_unknown_rewards(pool, file.parameters, domain, expression_ids, file.rewards(ids))
    pmdp = ParametricMDP(**file.structure(), expression=expression, table=table, domain=domain, rewards=rewards)
    # numbers of a file that says "double" are floats, and sum to 1 up to their rounding only
    pmdp, sums = normalised(pmdp, TOLERANCE if normalise else ROUNDING if file.is_double else Fraction(0))
    tell(file.name, [total for total in sums if abs(total - 1) > ROUNDING])
    low, high = expression_range(pmdp.table, pmdp.domain)
    restricted = ((low < -1e-9) | (high > 1 + 1e-9)).any() and pmdp.table.is_affine and pmdp.num_parameters
    if restricted:
        pmdp = replace(pmdp, domain=restrict_domain(pmdp.table, pmdp.domain))
    defects = [defect for defect in validate(pmdp, ranges_too=not restricted) if defect.kind != "unreachable"]
    try:
        raise_problems(file.name, defects)
    except ModelError as error:
        raise ModelError(f"{error}{hint([row_sum(pmdp, r) for r in rows_off(pmdp)[:100]])}") from None
    return pmdp


def _program(kind: str, states: int, rewards: Iterable[str]) -> Program:
    """What properties may speak of: the number of the state and the names of the rewards."""
    lines = [kind.lower(), "module states", f"  x : [0..{max(states - 1, 1)}];", "endmodule"]
    for name in rewards:
        lines += [f'rewards "{name}"', "  true : 0;", "endrewards"]
    return link_unknown(parse_model("\n".join(lines) + "\n", "<drn>"), {}, None, False)[0]
