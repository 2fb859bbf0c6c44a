"""`Certificate`: what was proved, from which data, under which method; plain JSON on disk."""

from __future__ import annotations

import math
import platform
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rpl_agent.core.model import Limit, Objective, Policy, Sense
from rpl_agent.core.printed import FEW, ceil_text, chance_text, floor_text, interval_text
from rpl_agent.core.schema import Count, Positive, Share, Whole, jsonable, read_document, write_document
from rpl_agent.core.version import __version__
from rpl_agent.guarantee.untied.fixed import Visited
from rpl_agent.guarantee.untied.plays import PlayedBound

FORMAT = "rpl-certificate/1"
#: Deviations of rewards below this are rounding: the bounds allow for them silently.
ROUNDING = 1e-12
#: By this share of themselves, and at most this share of the gap, bounds are moved outward at the end: `proof` moves
#: values by a little less.
MARGIN, GAP_MARGIN = 2e-9, 1e-3
#: What is said about the basis of a set.
BASES = {"bets": " with bets on the value", "rows": " with bets on rows"}
#: stages of `timings` that come after the confidence set
SOLVING = ("solve", "coupled", "rows", "regret")


class PolicyBounds(NamedTuple):
    """Bounds on the value of a policy; those of a given policy say nothing about better ones."""

    lower: float
    upper: float
    policy: Policy
    is_given: bool = False


@dataclass(frozen=True)
class LimitClaim:
    """What is certified about a limit: the policy's value lies in [lower, upper], every policy's is at least ``best``.

    (At most ``best`` for a limit from below.)
    """

    limit: Limit
    lower: float
    upper: float
    kept: bool | None  # by the policy; None if that is open
    possible: bool  # False: no policy keeps it, whatever the parameters of the region
    best: float
    more_episodes: int | None = None  # estimate: further episodes until some policy is certified to keep it
    price: Positive = 0.0  # its multiplier in the bound on every policy that keeps all limits

    def with_bounds(self, lower: float | None, upper: float | None, best: float | None) -> LimitClaim:
        """The claim with other bounds; None where nothing is bounded."""
        way = -math.inf if self.limit.upward else math.inf
        low, high = -math.inf if lower is None else lower, math.inf if upper is None else upper
        least = way if best is None else best
        possible = least <= self.limit.threshold if self.limit.upward else least >= self.limit.threshold
        kept = self.limit.kept_by(low, high)
        return replace(self, lower=low, upper=high, best=least, kept=kept, possible=possible)

    @property
    def sentence(self) -> str:
        text, upward = self.limit.describe(), self.limit.upward
        bound = ceil_text(self.upper) if upward else floor_text(self.lower)
        word = "at most" if upward else "at least"
        if not self.possible:
            other, best = ("at least", floor_text(self.best)) if upward else ("at most", ceil_text(self.best))
            return f"no policy keeps {text}: every one has {other} {best}"
        if self.kept:
            return f"the policy keeps {text}: {word} {bound}"
        if self.kept is None:
            more = "" if self.more_episodes is None else f"; about {self.more_episodes:,} more episodes (estimate)"
            return f"the policy is not certified to keep {text} yet: {word} {bound}{more}"
        return f"the policy breaks {text}: its value is in {interval_text(self.lower, self.upper)}"


@dataclass(frozen=True)
class Certificate:
    """With probability ≥ 1 − delta over the data, if ``anytime`` at all times simultaneously (see docs/guarantees.md):

    maximising: ``lower ≤ V^π(s0)`` for the returned policy π and ``V*(s0) ≤ upper``;
    minimising: ``V^π(s0) ≤ upper`` and ``lower ≤ V*(s0)``.
    With ``evaluated`` true the policy was given, or no policy keeps the limits: both bounds are on its own value.
    Always: no policy is better than this one by more than ``regret``.

    >>> import rpl_envs
    >>> world = rpl_envs.benchmark("Betting-25")
    >>> certificate = certify(world.pmdp, Counts(world.pmdp), world.objective)  # without data
    >>> certificate.delta, certificate.samples, certificate.guarantee == certificate.lower
    (0.001, 0, True)
    """

    lower: float
    upper: float
    delta: Share
    objective: Objective
    policy: Policy
    confidence: str
    relaxation: str
    samples: Whole
    regret: Positive = math.inf  # the most that any policy gains over this one; inf if it was not bounded
    optimal: bool = False  # no policy is better than this one
    undecided: Whole | None = None  # state-action pairs that may still be part of a better policy; None: not counted
    estimate: float = math.nan  # value of the policy at the point estimate: not a guarantee
    evaluated: bool = False
    prefer: str = "guarantee"  # what the policy was chosen by: its guarantee or its regret
    pieces: Count = 8  # the most pieces of the region that were tried on a side; more may prove more
    anytime: bool = True  # valid at data-dependent times (False for fixed-N intervals)
    log_e_value: float = 0.0  # largest evidence so far against the model's structure; enough refutes it
    refuted: bool = False
    empty: bool = False  # no parameter fits all constraints
    fallback: str | None = None  # what was used instead of the configured set, and why
    edge: str | None = None  # parameters whose most likely value lies outside their domain
    reward_error: Positive = 0.0  # deviation of rewards from the model's, inside lower and upper: a share, or per step
    #: what a likelihood set rests on: "bets" on the value, "windows" alone, a "table" of counts without order, or
    #: intervals with bets on "rows" beside them; "" for other sets
    basis: str = ""
    truncation: str | None = None  # what a time limit of the environment means for the guarantee
    assumptions: tuple[str, ...] = ()  # what is taken for granted beside the model's structure
    momentary_lower: float = math.nan  # of the latest data alone, if this is the best of a run so far
    momentary_upper: float = math.nan
    attribution: dict[str, float] = field(default_factory=dict)  # estimate: share of the gap per parameter
    episodes_for: dict[str, int] = field(default_factory=dict)  # estimate: further episodes until "regret of 1%"
    slack: float = 0.0  # width of the solver's brackets, already inside lower and upper; a horizon needs none
    model: str = ""
    model_hash: str = ""
    timings: dict[str, float] = field(default_factory=dict)
    iterations: Whole = 0
    versions: dict[str, str] = field(default_factory=dict)
    checked: bool = False  # both bounds passed the solver's independent check
    proved: bool = False  # `rpl_agent.guarantee.checker` proves exactly these numbers, from the file beside this one
    unproved: str = ""  # why not, if a proof was to be written
    plays: PlayedBound | None = None  # of the policy, if they bound its value better than the model does
    visits: Visited | None = None  # of the policy's rows, if they bound its value better than the model does
    limits: tuple[LimitClaim, ...] = ()  # of the objective, each with its bounds; `lower` and `upper` are within them

    @property
    def keeps_limits(self) -> bool:
        """Whether the policy is certified to keep every limit of the objective."""
        return all(claim.kept is True for claim in self.limits)

    @property
    def limits_are_possible(self) -> bool:
        """Whether no limit is certified to be broken by every policy."""
        return all(claim.possible for claim in self.limits)

    @property
    def gap(self) -> float:
        return self.upper - self.lower

    @property
    def guarantee(self) -> float:
        """The robust side: what the policy is guaranteed to achieve."""
        return self.lower if self.objective.sense is Sense.MAX else self.upper

    @property
    def sentence(self) -> str:
        """What holds with probability ≥ 1 − δ, as a sentence."""
        if self.limits:
            return self._limited_sentence
        close = f" and is {self.distance}" if self.regret < self.gap or self.optimal else ""
        if self.objective.sense is Sense.MAX:
            own, best = f"achieves at least {floor_text(self.lower)}", f"achieves more than {ceil_text(self.upper)}"
        else:
            own, best = f"costs at most {ceil_text(self.upper)}", f"costs less than {floor_text(self.lower)}"
        # bounds on a given policy say nothing about others
        return f"this policy {own}{close}" if self.evaluated else f"this policy {own}{close}; no policy {best}"

    @property
    def distance(self) -> str:
        """How far the policy is from the best one, in words."""
        is_optimal = self.optimal and self.regret == 0.0
        return "proved optimal" if is_optimal else f"within {ceil_text(self.regret, FEW)} of the best possible"

    @property
    def _limited_sentence(self) -> str:
        maximising = self.objective.sense is Sense.MAX
        ends = floor_text(self.lower), ceil_text(self.upper)
        own, far = ends if maximising else ends[::-1]
        verb, than = ("achieves at least", "achieves more") if maximising else ("costs at most", "costs less")
        words = [claim.sentence for claim in self.limits]
        words.append(f"it {verb} {own}")
        if self.limits_are_possible and not self.evaluated:  # bounds on a given policy say nothing about others
            words.append(f"no policy that keeps every limit {than} than {far}")
        return "; ".join(words)

    @property
    def explanation(self) -> str:
        """Where the gap comes from, as text; an estimate, empty if there is none."""
        parts = []
        for goal, episodes in self.episodes_for.items():
            parts.append(f"{goal}: ≈ {episodes:,} more episodes")
        for name, share in sorted(self.attribution.items(), key=lambda item: -item[1])[:3]:
            if share >= 0.005:
                parts.append(f"{share:.0%} of the gap is {name}")
        return ", ".join(parts)

    @property
    def notes(self) -> list[str]:
        """What a reader has to know besides the numbers."""
        unchecked = None if self.checked else "these bounds have not passed the solver's independent check"
        per = "of each" if self.objective.criterion.is_open_ended else "per step"
        rewards = f"rewards are not exactly the model's: bounds allow for {self.reward_error:.3g} {per}"
        rewards = rewards if self.reward_error > ROUNDING else ""
        table = "the counts have no order; steps in order (Counts.add_many) give tighter bounds"
        order = table if self.basis == "table" else None
        endless = "no lower bound: at some parameters that the data do not exclude, plays may never end"
        endless = endless if self.lower == -math.inf else ""
        unproved = f"no proof: {self.unproved}" if self.unproved else None
        noted = (self.fallback, *self.assumptions, self.edge, order, endless, rewards, self.truncation, unproved)
        return [note for note in (*noted, unchecked) if note]

    @property
    def e_value(self) -> float:
        return math.exp(min(self.log_e_value, 700.0))

    @property
    def build_seconds(self) -> float:
        return sum(v for k, v in self.timings.items() if k not in SOLVING)

    @property
    def solve_seconds(self) -> float:
        return sum(self.timings.get(stage, 0.0) for stage in SOLVING)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; infinities as the strings "inf" and "-inf"."""
        return {"format": FORMAT, **jsonable(self), "gap": jsonable(self.gap), "guarantee": jsonable(self.guarantee)}

    def to_json(self, path: str | Path | None = None) -> str:
        """The JSON text, also written to a file if there is a path."""
        return write_document(self.to_dict(), path)

    @classmethod
    def from_json(cls, source: str | Path) -> Certificate:
        """From a JSON text or a file."""
        return read_document(source, cls, FORMAT, "certificate")

    def __str__(self) -> str:
        subject = (
            "this policy's value lies in" if self.evaluated else "the policy is certified; value and optimum lie in"
        )
        if self.limits and not self.evaluated:
            within = ", and the best within the limits, lie" if self.limits_are_possible else " lies"
            subject = f"the policy's value{within} in"
        lines = [
            f"{self.objective.describe()}  on {self.model}",
            f"  with probability ≥ {chance_text(self.delta)}: {subject} {interval_text(self.lower, self.upper)}"
            f"  (gap {self.gap:.4g})",
        ]
        if self.limits:
            lines += [f"  {part}" for part in self.sentence.split("; ")]
        elif not self.evaluated:
            lines.append(f"  {self.sentence}")
        elif math.isfinite(self.regret):
            lines.append(f"  this policy is {self.distance}")
        lines.append(
            f"  from {self.samples:,} transitions, {self.confidence} set"
            f"{BASES.get(self.basis, '')}, {self.relaxation} relaxation"
            + ("" if self.anytime else " (fixed-N only: not valid if data decided how much data there is)")
        )
        if self.plays is not None:
            lines.append(f"  the policy's own bound is from {self.plays.plays:,} plays of it, which trust no structure")
        if self.visits is not None and self.plays is None:
            lines.append(f"  the policy's own bound is from {self.visits.sentence}")
        if self.proved:
            lines.append(
                "  proved: rpl_agent/guarantee/checker.py checks these numbers, from the proof beside the certificate"
            )
        if self.explanation:
            lines.append(f"  estimate: {self.explanation}")
        return "\n".join([*lines, *(f"  NOTE: {note}" for note in self.notes)])


def with_margin(objective: Objective, lower: float, upper: float) -> tuple[float, float]:
    """Bounds with room for a proof, which rounds its values; what every value satisfies stays as it is."""
    gap, most = upper - lower, objective.criterion.most
    low = lower - min(MARGIN * abs(lower), GAP_MARGIN * gap) if math.isfinite(lower) else lower
    high = upper + min(MARGIN * abs(upper), GAP_MARGIN * gap) if math.isfinite(upper) else upper
    return low, high if upper > most else min(high, most)


def between_bounds(estimate: float, lower: float, upper: float, precision: float) -> float:
    """The estimate, moved between the bounds if only its own error keeps it outside."""
    nearest = min(max(estimate, lower), upper)
    return nearest if abs(nearest - estimate) <= precision * max(1.0, abs(nearest)) else estimate


@cache
def versions() -> dict[str, str]:
    """Versions that affect the numbers, for the record."""
    from importlib.metadata import PackageNotFoundError, version  # which imports `email` and `socket`

    found = {"python": platform.python_version(), "rpl-agent": __version__}  # metadata of editable installs may be old
    for package in ("numpy", "scipy", "highspy", "gymnasium"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
