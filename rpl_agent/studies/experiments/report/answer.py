"""The first screen of a run's page: the answer in large type, what it means, and what more data would buy."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rpl_agent.core.model import Kind, Objective, Sense
from rpl_agent.core.model.pmdp import UNNAMED
from rpl_agent.core.printed import ceil_text, chance_text, floor_text
from rpl_agent.studies.experiments.report.charts import ReportChart, area, line, log_axis

Points = Mapping[str, np.ndarray]
#: Blue is the policy, orange is what bounds every policy, green is the truth where a simulator tells it.
POLICY, EVERY, TRUTH = "#0072B2", "#D55E00", "#009E73"
DIGITS = 3


def floor_digits(value: float) -> str:
    """At most the value, in few digits."""
    return floor_text(value, DIGITS).replace("inf", "∞")


def ceil_digits(value: float) -> str:
    """At least the value, in few digits."""
    return ceil_text(value, DIGITS).replace("inf", "∞")


def quantity(objective: Objective) -> str:
    """What the numbers measure, in words.

    >>> quantity(Objective.parse("maximise probability of goal avoiding crash within 8 steps"))
    'the probability of reaching “goal” without “crash” within 8 steps'
    >>> quantity(Objective.parse("minimise steps until done"))
    'the expected steps until “done”'
    """
    within = f" within {objective.horizon:,} steps" if objective.horizon is not None else ""
    if objective.kind is Kind.REACH:
        without = f" without “{objective.avoid}”" if objective.avoid else ""
        return f"the probability of reaching “{objective.target}”{without}{within}"
    if objective.kind is Kind.INSTANT:
        return f"the expected {objective.reward_name} at step {objective.horizon:,}"
    until = f" until “{objective.target}”" if objective.target else ""
    discount = f", discounted by {objective.discount:g} a step" if objective.discount < 1.0 else ""
    return f"the expected {objective.reward_name}{until}{within}{discount}"


def answer(certificate: Any, points: Points) -> str:
    """The headline of a run with a model."""
    maximising = certificate.objective.sense is Sense.MAX
    if maximising:
        bound, own = "at least", floor_digits(certificate.lower)
        best = f"achieves more than {ceil_digits(certificate.upper)}"
    else:
        bound, own = "at most", ceil_digits(certificate.upper)
        best = f"costs less than {floor_digits(certificate.lower)}"
    distance, others = _distance(certificate), rivals(certificate)
    every = f"; {others} {best}" if others else ""
    return _screen(
        f"{bound} <b>{own}</b>{f', {distance}' if distance else ''}",
        f"With probability at least {chance_text(certificate.delta)}, {quantity(certificate.objective)} is {bound} "
        f"{own} under this policy{every}.",
        [*_limits(certificate), _origin(certificate), *certificate.notes, *more_play(points, certificate)],
    )


def rivals(certificate: Any) -> str:
    """Of which policies the far bound of a certificate speaks: those within the limits; empty if of no other at all."""
    if certificate.evaluated or not certificate.limits_are_possible:
        return ""
    return "no policy that keeps every limit" if certificate.limits else "no policy"


def open_answer(certificate: Any, points: Points) -> str:
    """The headline of a run without a model."""
    own, regret = floor_digits(certificate.lower), ceil_digits(certificate.regret)
    return _screen(
        f"at least <b>{own}</b>, within <b>{regret}</b> of the best",
        f"With probability at least {chance_text(certificate.delta)}, {certificate.sentence}.",
        [certificate.assumptions, *certificate.notes, *more_play(points, certificate)],
    )


def _screen(large: str, sentence: str, lines: list[str]) -> str:
    small = "".join(f"<p class='note'>{html.escape(text)}</p>" for text in lines)
    return f"<p class='answer'>{large}</p><p>{html.escape(sentence)}</p>{small}"


def _distance(certificate: Any) -> str:
    if certificate.optimal and certificate.regret == 0.0:
        return "<b>proved optimal</b>"
    others = rivals(certificate)
    regret = min(certificate.regret, certificate.gap) if others else certificate.regret
    if not math.isfinite(regret):
        return ""
    best = "the best within the limits" if certificate.limits and others else "the best"
    return f"within <b>{ceil_digits(regret)}</b> of {best}"


def _limits(certificate: Any) -> list[str]:
    return [f"{claim.sentence[0].upper()}{claim.sentence[1:]}." for claim in certificate.limits]


def _origin(certificate: Any) -> str:
    model = "" if certificate.model == UNNAMED else f" on {certificate.model}"
    proved = "; a proof is stored beside the certificate" if certificate.proved else ""
    return f"{certificate.objective.describe()}{model}, from {certificate.samples:,} transitions{proved}."


def more_play(points: Points, certificate: Any) -> list[str]:
    """What one more hour at this run's pace would buy: the gap falls like 1/√n, a regret below it like 1/n."""
    episodes, seconds = points["episodes"][-1], points.get("time/elapsed", np.array([math.nan]))[-1]
    if not (episodes > 0 and seconds > 0 and math.isfinite(certificate.gap) and certificate.gap > 0.0):
        return []
    more = 3600.0 * episodes / seconds
    share = episodes / (episodes + more)
    rounded = float(f"{more:.2g}")
    text = f"Estimate: one more hour at this run's pace (about {rounded:,.0f} episodes) leaves a gap of about "
    text += f"{certificate.gap * math.sqrt(share):.2g}"
    if 0.0 < certificate.regret < certificate.gap:
        text += f" and a regret of about {certificate.regret * share:.1g}"
    return [text + "."]


def closing_chart(points: Points, certificate: Any, maximise: bool, others: str = "no policy") -> ReportChart:
    """One picture: the interval as a band that closes, the policy's value inside it, the regret below.

    others : of which policies the far bound speaks, as `rivals` says; empty if of none
    """
    x, lower, upper = points["episodes"], points["guarantee/lower"], points["guarantee/upper"]
    sides = [(lower, floor_digits(certificate.lower)), (upper, ceil_digits(certificate.upper))]
    (own, own_text), (far, far_text) = sides if maximise else sides[::-1]
    far_name = f"{others} is better" if others else "the other bound on its value"
    traces = [
        *area(x, lower, upper, "interval", EVERY, "bound"),
        line(x, far, f"{far_name}: now {far_text}", EVERY),
        line(x, own, f"guaranteed: now {own_text}", POLICY),
    ]
    truth = points.get("oracle/value")
    if truth is not None and np.isfinite(truth).any():
        last = truth[np.isfinite(truth)][-1]
        traces.append(line(x, truth, f"true value of the policy: now {last:.3g}", TRUTH))
    regret = points.get("guarantee/regret", points["guarantee/gap"])
    shown = np.where(regret > 0.0, regret, np.nan)  # 0, proved optimal, is below every logarithmic axis
    now = ceil_digits(min(certificate.regret, certificate.gap) if others else certificate.regret)
    below = line(x, shown, f"regret: now at most {now}", POLICY)
    traces.append({**below, "yaxis": "y2", "legend": "legend2"})
    for trace in traces:
        trace["meta"] = {}
    above = {"orientation": "h", "x": 0.0, "yanchor": "bottom"}  # a legend above a plot covers no curve
    layout = {
        "xaxis": {"title": {"text": "episodes"}, **log_axis(x), "anchor": "y2"},
        "yaxis": {"title": {"text": "value", "standoff": 12}, "domain": [0.42, 1.0], "automargin": True},
        "yaxis2": {
            "title": {"text": "regret", "standoff": 12},
            **log_axis(shown),
            "domain": [0.0, 0.3],
            "automargin": True,
        },
        "legend": {**above, "y": 1.0},
        "legend2": {**above, "y": 0.3},
        "height": 560,
    }
    better = "higher" if maximise else "lower"
    note = f"δ = {certificate.delta:g}; {better} is better. Below: how far the policy can be from the best."
    return ReportChart("bounds", "How the interval closes", note, {"run": {"traces": traces, "layout": layout}})
