"""`SamplingGoal`: facts about a run that a sampling plan needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SamplingGoal:
    """Facts about a run that a sampling plan needs."""

    amount: float  # episodes (steps) to plan for
    per_step: bool  # whether the budget is in steps rather than episodes
    limit: int | None  # steps after which the environment ends an episode; None if it need not
