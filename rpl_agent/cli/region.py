"""`rpl solve` over a region of parameters: bounds for all of them, where a comparison holds, and a picture."""

from __future__ import annotations

import argparse
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from rpl_agent.cli.common import emit

if TYPE_CHECKING:
    from rpl_agent.coupled.partition import Partition
    from rpl_agent.coupled.region import RegionPoint
    from rpl_agent.formats.prism import PrismModel, RegionAnswer

#: boxes for finding where a comparison holds and where not, and with a picture to draw
SHARE_BOXES, PICTURE_BOXES = 200, 2_000


def solve_region_question(arguments: argparse.Namespace, model: PrismModel) -> int:
    from rpl_agent.coupled.region import DEFAULT_BOXES, DEFAULT_PRECISION
    from rpl_agent.formats import prism
    from rpl_agent.plotting.values import ValuePicture, plot_values, shown_parameters

    if arguments.plot:
        shown_parameters(model.pmdp.domain)
    found = prism.answer_region(
        model, arguments.property, precision=arguments.precision or DEFAULT_PRECISION,
        max_boxes=arguments.boxes or DEFAULT_BOXES, time_limit=arguments.time_limit or inf,
    )  # fmt: skip
    parts = _parts(found, bool(arguments.plot))
    data = _facts(arguments, found, parts)
    if arguments.plot:
        query, picture = found.query, ValuePicture(found.solution, found.query.complement)
        if found.verdict is not None and query.threshold is not None:
            question = (query.comparison, float(query.threshold))
            picture = replace(picture, question=question, answer=found.verdict.answer, parts=parts)
        plot_values(picture, arguments.plot)
        data["picture"] = arguments.plot
    emit(arguments, data, "property for all parameters of the region")
    return 0


def _parts(found: RegionAnswer, for_picture: bool) -> Partition | None:
    """Where the comparison holds, box by box; None where there is none, or one answer for all."""
    from rpl_agent.coupled.partition import DEFAULT_UNDECIDED
    from rpl_agent.coupled.region import NOT_DECIDED, SOMEWHERE

    if found.verdict is None or found.verdict.answer not in (SOMEWHERE, NOT_DECIDED):
        return None
    share, boxes = (DEFAULT_UNDECIDED / 2, PICTURE_BOXES) if for_picture else (DEFAULT_UNDECIDED, SHARE_BOXES)
    return found.partition(share, boxes)


def _facts(arguments: argparse.Namespace, found: RegionAnswer, parts: Partition | None) -> dict[str, Any]:
    solution, region = found.solution, found.solution.region
    objective = found.query.objective.describe()
    facts: dict[str, Any] = {
        "model": arguments.model,
        "property": arguments.property or objective,
        "objective": objective + (" (the property is 1 minus this)" if found.query.complement else ""),
        "region": {
            n: f"{lo}:{hi}" for n, lo, hi in zip(region.parameters, region.lower.tolist(), region.upper.tolist())
        },
    }
    if len(region.b):
        facts["constraints"] = len(region.b)
    if found.verdict is not None:
        facts["answer"] = found.verdict.answer
        for name, witness in (("holds_at", found.verdict.holds_at), ("fails_at", found.verdict.fails_at)):
            if witness is not None:
                facts[name] = _named(region.parameters, witness)
        if parts is not None and parts.shares is not None:
            facts["holds_share"], facts["fails_share"] = parts.shares
    facts |= {
        "lower": found.lower,
        "upper": found.upper,
        "least_attained": found.least.upper,
        "least_at": _named(region.parameters, found.least),
        "most_attained": found.most.lower,
        "most_at": _named(region.parameters, found.most),
    }
    if solution.pmdp.num_rows > solution.pmdp.num_states and not found.query.complement:
        facts |= {"policy_guarantee": solution.guarantee, "best_possible_guarantee": solution.best_possible}
    facts |= {"boxes": solution.boxes, "seconds": solution.seconds, "converged": solution.converged}
    return facts


def _named(names: tuple[str, ...], witness: RegionPoint) -> dict[str, float]:
    return dict(zip(names, witness.theta.tolist()))
