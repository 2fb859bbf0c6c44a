"""The first screen of a run's page: the answer in large type, what it means, and what more data would buy."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rpl_agent.core.model import Kind, Objective, Sense
from rpl_agent.studies.experiments.report.charts import ReportChart, area, line

Points = Mapping[str, np.ndarray]
#: Blue is the policy, orange is what bounds every policy, green is the truth where a simulator tells it.
POLICY, EVERY, TRUTH = "#0072B2", "#D55E00", "#009E73"
DIGITS = 3


def floor_digits(value: float, digits: int = DIGITS) -> str:
    """The value with few digits, rounded down, so that what holds of it holds of the text.

    >>> floor_digits(0.25949), floor_digits(-1.2345), floor_digits(1234.5)
    ('0.259', '-1.24', '1230')
    """
    return _rounded(value, digits, math.floor)


def ceil_digits(value: float, digits: int = DIGITS) -> str:
    """The same, rounded up.

    >>> ceil_digits(0.31496), ceil_digits(0.0)
    ('0.315', '0')
    """
    return _rounded(value, digits, math.ceil)


def _rounded(value: float, digits: int, rounding: Any) -> str:
    if value == 0.0 or not math.isfinite(value):
        return f"{value:g}".replace("inf", "∞")
    places = digits - 1 - math.floor(math.log10(abs(value)))
    scale = 10.0**places
    return f"{rounding(value * scale) / scale:.{digits + 3}g}"


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
        every = f"no policy achieves more than {ceil_digits(certificate.upper)}"
    else:
        bound, own = "at most", ceil_digits(certificate.upper)
        every = f"no policy costs less than {floor_digits(certificate.lower)}"
    return _screen(
        f"{bound} <b>{own}</b>, {_distance(certificate)}",
        f"With probability at least {1 - certificate.delta:.6g}, {quantity(certificate.objective)} is {bound} {own} "
        f"under this policy; {every}.",
        [*_limits(certificate), _origin(certificate), *certificate.notes, *more_play(points, certificate)],
    )


def open_answer(certificate: Any, points: Points) -> str:
    """The headline of a run without a model."""
    own, regret = floor_digits(certificate.lower), ceil_digits(certificate.regret)
    return _screen(
        f"at least <b>{own}</b>, within <b>{regret}</b> of the best",
        f"With probability at least {1 - certificate.delta:.6g}, {certificate.sentence}.",
        [certificate.assumptions, *certificate.notes, *more_play(points, certificate)],
    )


def _screen(large: str, sentence: str, lines: list[str]) -> str:
    small = "".join(f"<p class='note'>{html.escape(text)}</p>" for text in lines)
    return f"<p class='answer'>{large}</p><p>{html.escape(sentence)}</p>{small}"


def _distance(certificate: Any) -> str:
    if certificate.optimal and certificate.regret == 0.0:
        return "<b>proved optimal</b>"
    return f"within <b>{ceil_digits(min(certificate.regret, certificate.gap))}</b> of the best"


def _limits(certificate: Any) -> list[str]:
    return [claim.sentence for claim in certificate.limits]


def _origin(certificate: Any) -> str:
    proved = "; a proof is stored beside the certificate" if certificate.proved else ""
    return (
        f"{certificate.objective.describe()} on {certificate.model}, from {certificate.samples:,} transitions{proved}."
    )


def more_play(points: Points, certificate: Any) -> list[str]:
    """What one more hour at this run's pace would buy: the gap falls like 1/√n, a regret below it like 1/n."""
    episodes, seconds = points["episodes"][-1], points.get("time/elapsed", np.array([math.nan]))[-1]
    if not (episodes > 0 and seconds > 0 and math.isfinite(certificate.gap) and certificate.gap > 0.0):
        return []
    more = 3600.0 * episodes / seconds
    share = episodes / (episodes + more)
    text = f"Estimate: one more hour at this run's pace ({more:,.0f} episodes) leaves a gap of about "
    text += f"{certificate.gap * math.sqrt(share):.2g}"
    if 0.0 < certificate.regret < certificate.gap:
        text += f" and a regret of about {certificate.regret * share:.1g}"
    return [text + "."]


def closing_chart(points: Points, delta: float, maximise: bool) -> ReportChart:
    """One picture: the interval as a band that closes, the policy's value inside it, the regret below."""
    x, lower, upper = points["episodes"], points["guarantee/lower"], points["guarantee/upper"]
    own, far = (lower, upper) if maximise else (upper, lower)
    traces = [
        *area(x, lower, upper, "interval", EVERY, "bound"),
        line(x, far, "no policy is better", EVERY),
        line(x, own, "guaranteed", POLICY),
    ]
    # outside the band: inside is the true value, which may start at the guarantee
    own_text, far_text = (floor_digits, ceil_digits) if maximise else (ceil_digits, floor_digits)
    traces.append(_label(x, far, " no policy is better: now {}", EVERY, maximise, far_text))
    traces.append(_label(x, own, " guaranteed: now {}", POLICY, not maximise, own_text))
    truth = points.get("oracle/value")
    if truth is not None and np.isfinite(truth).any():
        traces.append(line(x, truth, "true value of the policy", TRUTH))
        traces.append(_label(x, truth, " true value of the policy: now {}", TRUTH, True))
    regret = points.get("guarantee/regret", points["guarantee/gap"])
    shown = np.where(regret > 0.0, regret, np.nan)  # 0, proved optimal, is below every logarithmic axis
    below = line(x, shown, "no policy is better by more", POLICY)
    traces.append({**below, "yaxis": "y2"})
    traces.append({**_label(x, shown, " regret: now at most {}", POLICY, True, ceil_digits), "yaxis": "y2"})
    for trace in traces:
        trace["meta"], trace["showlegend"] = {}, False
    layout = {
        "xaxis": {"title": {"text": "episodes"}, "type": "log", "dtick": 1, "anchor": "y2"},
        "yaxis": {"title": {"text": "value"}, "domain": [0.42, 1.0], "automargin": True},
        "yaxis2": {"title": {"text": "regret"}, "type": "log", "domain": [0.0, 0.32], "automargin": True, "nticks": 5},
        "height": 520,
    }
    note = (
        f"δ = {delta:g}; {'higher' if maximise else 'lower'} is better. Below: how far the policy can be from the best."
    )
    return ReportChart("bounds", "How the interval closes", note, {"run": {"traces": traces, "layout": layout}})


def _label(
    x: np.ndarray,
    y: np.ndarray,
    text: str,
    colour: str,
    above: bool,
    rounding: Callable[[float], str] = "{:.3g}".format,
) -> dict[str, Any]:
    """A label with a line's last value, at its left end, where the band is wide and labels keep apart.

    rounding : makes the text of a value; that of a bound is rounded away from what it bounds
    """
    finite = np.flatnonzero(np.isfinite(y))
    first, last = finite[:1], finite[-1:]
    return {
        "mode": "text",
        "x": x[first].tolist(),
        "y": y[first].tolist(),
        "text": [text.format(rounding(float(value))) for value in y[last]],
        "textposition": "top right" if above else "bottom right",
        "textfont": {"color": colour, "size": 14},
        "cliponaxis": False,
        "hoverinfo": "skip",
    }
