"""Returns of the episodes of a log, without the model's probabilities: what an unknown baseline is worth.

An episode is complete if it ends in a state where the objective is decided, or after as many steps as its horizon.
Otherwise it was cut, and the rest of its return is anywhere in the range of what a play can earn. The reward of a step
is the model's, for the transition that was logged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rpl_agent.agent.world.plays import finished, gains, over_at_once, reward_errors, value_range
from rpl_agent.core.errors import DataError, finite_range
from rpl_agent.core.model import Instant, Objective, ParametricMDP, Task
from rpl_agent.formats.logs import log_steps
from rpl_agent.guarantee.claims.improvement import LogReturns


def log_returns(
    pmdp: ParametricMDP,
    source: str | Path | Sequence[str | Path],
    objective: Objective | str,
    *,
    bounds: tuple[float, float] | None = None,
    fixed_length: bool = False,
    shown: Mapping[int, int] | None = None,
) -> LogReturns:
    """The returns of all episodes of a log that begin where plays of the model do.

    Parameters
    ----------
    bounds : what a return can be at least and at most; by default from the model
    fixed_length : whether the number of episodes (not of steps) was fixed before the data: bounds are tighter then
    shown : as in `read_log`

    >>> import tempfile, pathlib
    >>> toss = lambda s: {"flip": {1: "p", 2: "1 - p"}} if s == 0 else {"stay": {s: 1}}
    >>> model = build(0, toss, domain=["p"], labels={"won": lambda s: s == 1})
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "log.csv"
    >>> _ = path.write_text("state,action,next_state\\n0,flip,1\\n0,flip,2\\n")
    >>> log_returns(model, path, "maximise probability of won").least
    array([1., 0.])
    """
    objective = Objective.parse(objective) if isinstance(objective, str) else objective
    task = objective.resolve(pmdp)
    if isinstance(objective.criterion, Instant):
        raise DataError(f"no step of a log is paid {objective.describe()}, the reward of an instant: give the policy")
    _require_steps(pmdp, task)
    transitions, starts = log_steps(pmdp, source, shown)
    own = value_range(pmdp, objective, None)
    if bounds is not None:
        bounds = finite_range("bounds", bounds, "the least and the most that one episode can return", equal=True)
    low, high = own if bounds is None else bounds
    paid, over = gains(pmdp, task), task.decided if objective.must_reach else task.decided | finished(pmdp, task)
    first = np.flatnonzero(starts)
    lengths = np.diff(np.append(first, len(transitions)))
    begun = np.isin(pmdp.row_state[pmdp.transition_row[transitions[first]]], pmdp.first_states)
    # What is left of a discounted play lies in the same range, discounted; other ranges are those of whole plays, and
    # with a horizon of plays from the start.
    is_everywhere = bounds is None and objective.discount < 1.0 and objective.horizon is None
    left = (low, high) if is_everywhere else (-np.inf, np.inf)
    left = (max(left[0], 0.0) if paid.min() >= 0.0 else left[0], min(left[1], 0.0) if paid.max() <= 0.0 else left[1])
    least, most, error = [], [], float(reward_errors(pmdp, objective).max(initial=0.0))
    for begin, length in zip(first[begun].tolist(), lengths[begun].tolist()):
        earned, rest = _return(pmdp, objective, paid, over, transitions[begin : begin + length])
        if not low <= earned <= high and rest == 0.0:
            raise DataError(f"an episode returned {earned:.6g}, outside [{low:.6g}, {high:.6g}]: give wider bounds")
        off = error * length
        least.append(max(earned - off + (rest * left[0] if rest else 0.0), low))
        most.append(max(min(earned + off + (rest * left[1] if rest else 0.0), high), least[-1]))
    stated = not low <= own[0] <= own[1] <= high
    return LogReturns(np.array(least), np.array(most), (low, high), fixed_length, stated)


def _require_steps(pmdp: ParametricMDP, task: Task) -> None:
    """Raise if plays may be over before their first step: the log has no row of these."""
    over = (over_at_once(pmdp, task) | task.decided)[pmdp.first_states]
    if over.any():
        state = pmdp.state_name(int(pmdp.first_states[over][0]))
        raise DataError(
            f"plays may begin in {state}, where they are over: a log has no rows of these, so the mean of its returns "
            "is not what its policy is worth; give the policy"
        )


def _return(
    pmdp: ParametricMDP, objective: Objective, paid: np.ndarray, over: np.ndarray, steps: np.ndarray
) -> tuple[float, float]:
    """(the return of some steps, the weight of the step after them; 0 if the episode is complete)."""
    total, weight = 0.0, 1.0
    for step in steps[: objective.horizon].tolist():
        total += weight * float(paid[step])
        weight *= objective.discount
        if over[pmdp.visible_successor[step]]:
            return total, 0.0
    return total, 0.0 if objective.horizon is not None and len(steps) >= objective.horizon else weight
