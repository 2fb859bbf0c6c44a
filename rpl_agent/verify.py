"""A stored certificate, checked from scratch as a third party would: against the model and the data, not against us.

The confidence set is made anew from the counts and their marks, the stored policy is evaluated on it and the optimum
bounded, both without a warm start, and both solutions pass the solver's independent check. A claim that
the new bounds do not support is named.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.certificate import Certificate
from rpl_agent.errors import DataError, ModelError
from rpl_agent.evidence.counts import Counts
from rpl_agent.likelihood.refutation.alternatives import NO_DOUBT, Doubt
from rpl_agent.model.objective import Sense
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.pipeline import Config, certify_uncertainty, uncertainty_from
from rpl_agent.schema import Maybe, Text, Whole, check, read_json

_PAIRS = [[Whole()]]
#: Of the data inside a stored certificate: (transition, count) and, per mark, (expression, count).
SCHEMA = {
    "schedule": Text(), "planned": Whole(), "transitions": _PAIRS,
    "marks": [{"total": Whole(), "weight": Text(64, hexadecimal=True), "successes": _PAIRS}],
}  # fmt: skip
#: A claim may exceed the new bound by this many times the width asked of the solver.
ALLOWED = 4.0


@dataclass(frozen=True)
class Verdict:
    """What a check from scratch found; no problems means that the claims hold on the data."""

    problems: list[str]
    notes: list[str]
    lower: float
    upper: float


def verify(certificate: Certificate, pmdp: ParametricMDP, counts: Counts, precision: float = 1e-6) -> Verdict:
    """Check a certificate against the model and the data that it is said to come from."""
    problems = _identity(certificate, pmdp, counts)
    if problems:
        return Verdict(problems, [], math.nan, math.nan)
    config = Config(certificate.confidence, certificate.relaxation, certificate.delta, precision)
    evidence = Doubt(certificate.log_e_value) if certificate.refuted else NO_DOUBT
    uncertainty = uncertainty_from(pmdp, counts, config, evidence=evidence)
    found = certify_uncertainty(pmdp, counts, uncertainty, certificate.objective, config, policy=certificate.policy)
    if not certificate.evaluated:  # the far side bounds every policy, not only this one
        best = certify_uncertainty(pmdp, counts, uncertainty, certificate.objective, config)
        maximising = certificate.objective.sense is Sense.MAX
        lower, upper = (found.lower, best.upper) if maximising else (best.lower, found.upper)
        if _claims(certificate)[1]:  # the last data's own bounds are about a policy of their own
            lower, upper = best.lower, best.upper
    else:
        lower, upper = found.lower, found.upper
    if not found.checked:
        problems.append("the new bounds did not pass the solver's check")
    if uncertainty.refuted and not certificate.refuted:
        problems.append("the data refute the model, and the certificate does not say so")
    claims, notes = _claims(certificate)
    room = ALLOWED * precision
    if claims[0] > lower + room * max(1.0, abs(lower)) and not claims[0] == lower:
        problems.append(f"the lower bound {claims[0]:.9g} is claimed, the data support {lower:.9g}")
    if claims[1] < upper - room * max(1.0, abs(upper)) and not claims[1] == upper:
        problems.append(f"the upper bound {claims[1]:.9g} is claimed, the data support {upper:.9g}")
    return Verdict(problems, notes, lower, upper)


def _identity(certificate: Certificate, pmdp: ParametricMDP, counts: Counts) -> list[str]:
    """Whether certificate, model and data belong together."""
    if certificate.model_hash != pmdp.content_hash:
        return [f"the certificate is about another model than {pmdp!r}"]
    if certificate.samples != counts.total:
        return [f"the certificate is about {certificate.samples:,} transitions, the data hold {counts.total:,}"]
    try:
        certificate.objective.resolve(pmdp)
        certificate.policy.check(pmdp)
    except ModelError as error:
        return [str(error)]
    return []


def _claims(certificate: Certificate) -> tuple[tuple[float, float], list[str]]:
    """The bounds that these data are to support, and what is left out."""
    momentary = [getattr(certificate, f"momentary_{side}", math.nan) for side in ("lower", "upper")]
    if not any(np.isfinite(momentary)) or momentary == [certificate.lower, certificate.upper]:
        return (certificate.lower, certificate.upper), []
    note = (
        f"the bounds [{certificate.lower:.6g}, {certificate.upper:.6g}] are the best of the run; what its last data "
        f"support by themselves, [{momentary[0]:.6g}, {momentary[1]:.6g}], was checked"
    )
    return (momentary[0], momentary[1]), [note]


# ---------------------------------------------------------------------- data inside a certificate file
def data_to_json(counts: Counts) -> dict[str, Any]:
    """Counts and marks as JSON; only what was seen takes room."""
    return {
        "schedule": counts.schedule, "planned": counts.planned or 0, "transitions": _sparse(counts.transitions),
        "marks": [
            {"total": m.total, "weight": float(m.weight).hex(), "successes": _sparse(m.successes)} for m in counts.marks
        ],
    }  # fmt: skip


def data_from_json(pmdp: ParametricMDP, data: Mapping[str, Any]) -> Counts:
    """Inverse of `data_to_json`; data that do not fit the model are an error."""
    check(data, SCHEMA, "the certificate's data")
    marks = data["marks"]
    expressions = np.zeros((0, pmdp.num_expressions), dtype=np.int64)
    return Counts.from_arrays(pmdp, {
        "schedule": np.array(data["schedule"]), "planned": np.array(data["planned"]),
        "transitions": _dense(data["transitions"], pmdp.num_transitions),
        "mark_totals": np.array([m["total"] for m in marks], dtype=np.int64),
        "mark_weights": np.array([float.fromhex(m["weight"]) for m in marks]),
        "mark_successes":
            np.stack([_dense(m["successes"], pmdp.num_expressions) for m in marks]) if marks else expressions,
    })  # fmt: skip


def write_with_data(path: Path, certificate: Certificate, counts: Counts, source: Mapping[str, Any]) -> None:
    """A certificate file that can be verified by itself: with the data, and with how to make the model again."""
    data = certificate.to_dict() | {"data": data_to_json(counts), "source": dict(source)}
    path.write_text(json.dumps(data, allow_nan=False))


def read_with_data(path: Path) -> tuple[Certificate, dict[str, Any] | None, dict[str, Any] | None]:
    """(certificate, its data or None, how to make the model or None)."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    found = read_json(text, {"data": Maybe({}), "source": Maybe({})}, str(path))
    return Certificate.from_json(text), found.get("data"), found.get("source")


def _sparse(counts: np.ndarray) -> list[list[int]]:
    places = np.flatnonzero(counts)
    return np.stack([places, counts[places]], axis=1).tolist()


def _dense(pairs: list[list[int]], size: int) -> np.ndarray:
    counts = np.zeros(size, dtype=np.int64)
    for pair in pairs:
        if len(pair) != 2 or not 0 <= pair[0] < size:
            raise DataError(f"the certificate's data hold {pair}, which does not fit the model")
        counts[pair[0]] = pair[1]
    return counts
