"""Data as plain numbers: a part of a proof that the checker trusts, as it trusts the model."""

from __future__ import annotations

from typing import Any

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.guarantee.likelihood.checked_model import sparse


def data_to_json(counts: Counts) -> dict[str, Any]:
    """Counts and marks as sparse JSON."""
    return {
        "schedule": counts.schedule or "",
        "planned": counts.planned or 0,
        "transitions": sparse(counts.transitions),
        "marks": [
            {
                "total": m.total,
                "weight": float(m.weight).hex(),
                "progress": float(m.progress).hex(),
                "successes": sparse(m.successes),
                "trials": [] if m.trials is None else sparse(m.trials),
            }
            for m in counts.marks
        ],
    }


def data_content(counts: Counts, graph: bool) -> dict[str, Any]:
    """The data with plain numbers, under the name of the schedule that determined the weights of likelihood windows."""
    weights, data = {"shares": "split"}, data_to_json(counts)
    schedule = counts.schedule or "geometric"
    marks = [m | {name: float.fromhex(m[name]) for name in ("weight", "progress")} for m in data["marks"]]
    return data | {"schedule": weights.get(schedule, schedule), "marks": [] if graph else marks}  # of tied expressions
