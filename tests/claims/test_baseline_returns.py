"""Returns of logs whose episodes miss the target, or are cut: what they leave open is not bounded away."""

from __future__ import annotations

import numpy as np
import pytest

from rpl_agent import DataError, Objective, build, improve, log_returns, read_log


def write(path, rows):
    path.write_text("\n".join(["state,action,next_state,episode", *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def test_a_log_with_misses_has_no_finite_returns_where_these_are_worth_infinity(tmp_path):
    """The baseline, worth infinity, had a finite value, and a better policy was certified to be worse."""
    rows = {0: {"risky": {1: "1 - p", 2: "p"}, "safe": {1: 1}}}
    model = build(
        0, lambda s: rows.get(s, {"stay": {s: 1}}), domain={"p": (0.1, 0.9)}, labels={"goal": lambda s: s == 1},
        rewards={"cost": lambda s, a: {"risky": 1.0, "safe": 3.0}[a] if s == 0 else 0.0},
    )  # fmt: skip
    missed = np.random.default_rng(1).random(100) < 0.5
    path = write(tmp_path / "log.csv", [(0, "risky", 2 if miss else 1, k) for k, miss in enumerate(missed)])
    returns, counts = log_returns(model, path, "minimise cost until goal"), read_log(model, path).counts
    assert returns.bounds == (0.0, np.inf) and (returns.most == np.inf).sum() == missed.sum()
    with pytest.raises(DataError, match="bounded returns"):
        improve(model, counts, "minimise cost until goal", "log", returns=returns)


def test_what_a_horizon_leaves_of_a_discounted_play_is_not_its_range_from_the_start(tmp_path):
    """A cut play was bounded by what the whole is worth from its start, discounted again."""

    def actions(state):
        if state == "end":
            return {"go": {state: 1}}
        return {"a": {"end" if state == 3 else state + 1: 1}}

    model = build(
        0, actions, domain=[], labels={"end": lambda s: s == "end"},
        rewards={"gain": lambda s, a: 100.0 if s == 3 else 0.0},
    )  # fmt: skip
    objective = Objective.discounted("gain", 0.5, target="end", horizon=4)
    path = write(tmp_path / "log.csv", [(s, "a", s + 1, k) for k in range(5) for s in range(3)])  # all are cut
    assert (log_returns(model, path, objective).most >= 12.5).all()  # 100 / 8: what each of them earns
