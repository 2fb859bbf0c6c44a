"""`OpenCertificate`: what is proved of a world without a model, and what it assumes; plain JSON on disk."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rpl_agent.core.coupled.regret import difference_above
from rpl_agent.core.printed import ceil_text, chance_text, floor_text
from rpl_agent.core.schema import Share, Whole, jsonable, read_document, write_document
from rpl_agent.guarantee.certificate import versions

FORMAT = "rpl-open-certificate/1"


@dataclass(frozen=True)
class OpenCertificate:
    """With probability ≥ 1 − delta over the data, at all times simultaneously, under what is ``assumed``:

    ``lower`` ≤ V^π(start) for the returned policy π and V*(start) ≤ ``upper``.

    >>> OpenCertificate(0.25, 0.5, 0.1, "queue", "R max", ("returns lie in [0, 1]",)).regret
    0.25
    """

    lower: float
    upper: float
    delta: Share
    model: str  # the world's name
    objective: str
    assumed: tuple[str, ...]
    samples: Whole = 0
    episodes: Whole = 0
    states: Whole = 0  # seen
    rows: Whole = 0  # actions of states seen
    untried: Whole = 0  # rows never tried
    top: float = math.nan  # what a row never tried counts as
    plays: Whole = 0  # episodes of the returned policy that the lower bound rests on
    policies: Whole = 0  # fixed so far, each with its share of δ
    policy: tuple[tuple[Any, Any], ...] = ()  # (state, action), with a horizon its actions by steps to go
    elsewhere: Any = None  # the policy's action in every other state
    estimate: float = math.nan  # mean return of these plays: not a guarantee
    momentary_lower: float = math.nan  # of the latest policy and data alone
    momentary_upper: float = math.nan
    versions: dict[str, str] = field(default_factory=versions)
    truncation: str | None = None
    proved: bool = False  # `rpl_agent.checker` proves exactly these numbers, from the file beside this one
    unproved: str = ""  # why not, if a proof was to be written

    @property
    def gap(self) -> float:
        return self.upper - self.lower

    @property
    def regret(self) -> float:
        """How much better than the returned policy any policy can be; rounded up."""
        return difference_above(self.upper, self.lower)

    @property
    def guarantee(self) -> float:
        return self.lower

    @property
    def attribution(self) -> dict[str, float]:
        return {}

    @property
    def sentence(self) -> str:
        """What holds with probability ≥ 1 − δ, as a sentence."""
        return (
            f"this policy returns at least {floor_text(self.lower)} (it was played {self.plays:,} times), no policy "
            f"returns more than {ceil_text(self.upper)}"
        )

    @property
    def assumptions(self) -> str:
        """What was assumed, and what was not."""
        never = (
            "every row was tried"
            if not self.untried
            else f"{self.untried:,} row{'s' * (self.untried > 1)} never tried count{'s' * (self.untried == 1)} as "
            f"{self.top:g}"
        )
        return (
            f"Assumed: {', '.join(self.assumed)}. Nothing was assumed about which states exist or follow which: "
            f"{self.states:,} states were seen, {never}."
        )

    @property
    def notes(self) -> list[str]:
        """What a reader has to know besides the numbers."""
        return [f"no proof: {self.unproved}"] if self.unproved else []

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; infinities as the strings "inf" and "-inf"."""
        more = {"gap": self.gap, "regret": self.regret, "sentence": self.sentence, "assumptions": self.assumptions}
        return {"format": FORMAT, **jsonable(self), **jsonable(more)}

    def to_json(self, path: str | Path | None = None) -> str:
        """The JSON text, also written to a file if there is a path."""
        return write_document(self.to_dict(), path)

    @classmethod
    def from_json(cls, source: str | Path) -> OpenCertificate:
        """From a JSON text or a file."""
        return read_document(source, cls, FORMAT, "certificate without a model")

    def __str__(self) -> str:
        fixed = "1 policy was" if self.policies == 1 else f"{self.policies:,} policies were"
        return "\n".join(
            [
                f"{self.objective}  on {self.model}, without a model",
                f"  with probability ≥ {chance_text(self.delta)}: {self.sentence}  (gap {self.gap:.4g})",
                f"  {self.assumptions}",
                f"  from {self.samples:,} steps of {self.episodes:,} episodes; {fixed} fixed",
                *(
                    ["  proved: `python -m rpl_agent.checker` checks these numbers from the proof"]
                    if self.proved
                    else []
                ),
                *(f"  NOTE: {note}" for note in self.notes),
            ]
        )
