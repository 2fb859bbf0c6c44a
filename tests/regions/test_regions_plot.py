"""The picture of U: right outlines, and a file that is a picture."""

from __future__ import annotations

import numpy as np
import pytest

from rpl_agent.agent.output.plotting.region import outline, parameter_support, plot_region
from rpl_agent.core.errors import ModelError
from rpl_agent.core.regions import Polytope, build_region
from tests.reference.domains import points_of
from tests.reference.regions import affine_model, intervals_around, polynomial_model

MODELS = [("affine", affine_model(3, 3)), ("bilinear", polynomial_model(3, 2)), ("cubic", polynomial_model(3, 3))]


@pytest.mark.parametrize("pmdp", [m for _, m in MODELS], ids=[n for n, _ in MODELS])
def test_outline_surrounds_the_feasible_points(pmdp):
    theta = points_of(pmdp.domain, np.random.default_rng(1), 1)[0]
    lower, upper = intervals_around(pmdp, theta, 2)
    region = build_region(pmdp, lower, upper)
    points = theta + np.random.default_rng(0).normal(size=(500, len(theta))) * 0.05
    points = points[pmdp.domain.contains(points, tol=0.0)]
    f = pmdp.table.at(points)
    points = np.vstack([theta, points[((f >= lower) & (f <= upper)).all(axis=1)]])
    directions = np.random.default_rng(2).normal(size=(30, len(theta)))
    support = parameter_support(region, pmdp, directions)
    assert (support <= (directions @ points.T).min(axis=1) + 1e-9).all()
    assert (support >= parameter_support(None, pmdp, directions) - 1e-9).all()
    corners = outline(region, pmdp, (0, 1))
    for axis in (0, 1):
        assert corners[:, axis].min() <= points[:, axis].min() + 1e-9
        assert corners[:, axis].max() >= points[:, axis].max() - 1e-9
        assert np.ptp(corners[:, axis]) < 1.2


@pytest.mark.parametrize("parameters", [(0, 1), (1,)])
def test_picture_is_written(tmp_path, parameters):
    pmdp = affine_model(3, 2)
    theta = np.array([0.3, 0.4])
    region = build_region(pmdp, *intervals_around(pmdp, theta, 2))
    written = plot_region(region, pmdp, parameters, theta, path=tmp_path / "u.png")
    assert written.read_bytes()[:4] == b"\x89PNG" and written.stat().st_size > 5000


def test_nothing_to_draw_is_an_error(tmp_path):
    pmdp = affine_model(3, 2)
    with pytest.raises(ModelError, match="parameters"):
        plot_region(build_region(pmdp, *intervals_around(pmdp, np.array([0.3, 0.4]), 2)), pmdp, (0, 5))
    with pytest.raises(ModelError, match="empty"):
        plot_region(Polytope([[1.0, 0.0]], [-1.0], [0, 0], [1, 1]), pmdp, (0, 1), path=tmp_path / "u.png")


def test_a_policy_map_has_one_symbol_per_action():
    """An action was "u" in one cell and "↑" in another, without a legend."""
    from rpl_agent.agent.output.plotting.policy_map import policy_map
    from rpl_agent.core.model import Objective, build
    from rpl_agent.core.solver import solve_at

    moves = {"up": (0, 1), "right": (1, 0)}

    def actions(cell):
        if cell == (2, 2):
            return {name: {cell: 1} for name in moves}
        to = {name: (min(cell[0] + dx, 2), min(cell[1] + dy, 2)) for name, (dx, dy) in moves.items()}
        return {name: {to[name]: "p", cell: "1 - p"} if to[name] != cell else {cell: 1} for name in moves}

    pmdp = build(
        (0, 0), actions, domain={"p": (0.5, 1.0)}, variables=("x", "y"), action_names=list(moves),
        labels={"goal": lambda cell: cell == (2, 2)}, rewards={"cost": lambda cell, a: 1.0},
    )  # fmt: skip
    found = solve_at(pmdp, np.array([0.8]), Objective.cost("cost", target="goal"))
    shown = policy_map(pmdp.instantiate([0.8]), found.policy)
    pairs = {(int(a), str(s)) for a, s in zip(shown.action.ravel(), shown.symbols.ravel()) if a >= 0}
    assert len(pairs) == len({a for a, _ in pairs}) == len({s for _, s in pairs})
    assert {shown.legend[a] for a, _ in pairs} <= {"↑ up", "→ right"}


def test_only_single_numbers_are_axes():
    """A variable may be a vector, as the position of a Dict observation: that ended runs in an IndexError."""
    from rpl_agent.agent.output.plotting.policy_map import policy_map
    from rpl_agent.core.model import Objective, build
    from rpl_agent.core.solver import solve_at

    def actions(state):
        (y, x), fuel, _ = state
        if fuel == 0:
            return {"go": {state: 1}}
        return {"go": {((y, x + 1), fuel - 1, "far"): "p", ((y + 1, x), fuel - 1, "near"): "1 - p"}}

    for names in (("pos", "fuel", "mode"), ("x", "y", "mode")):
        pmdp = build(((0, 0), 2, "near"), actions, domain=["p"], variables=names, labels={"end": lambda s: s[1] == 0})
        policy = solve_at(pmdp, np.array([0.8]), Objective.reach("end")).policy
        shown = policy_map(pmdp.instantiate([0.8]), policy)
        assert set(shown.axes) == {names[1], "mode"}


def test_a_map_shows_the_policy_and_not_the_silent_states_behind_its_payments():
    """CliffWalking was drawn upside down, its policy as "up" everywhere, even in the goal."""
    from rpl_agent.agent.output.plotting.policy_map import policy_map
    from rpl_agent.core.solver import solve_at
    from rpl_envs.toy.cliff_walking import cliff_walking_model

    pmdp, objective = cliff_walking_model()
    theta = np.array([1.0])
    shown = policy_map(pmdp.instantiate(theta), solve_at(pmdp, theta, objective).policy)
    assert shown.downward
    rows = ["".join(row) for row in shown.symbols.tolist()]
    assert rows[2] == "→" * 11 + "↓" and rows[3] == "↑" + "G"
    assert shown.action[3, 11] == -1 and shown.ends == {"G": "goal"}


def test_marks_of_a_map_are_evenly_spaced():
    """CliffWalking's columns were 0, …, 8, 9, 11."""
    from rpl_agent.agent.output.plotting.policy_map import draw, policy_map
    from rpl_agent.core.solver import solve_at
    from rpl_envs.toy.cliff_walking import cliff_walking_model

    pmdp, objective = cliff_walking_model()
    theta = np.array([1.0])
    figure = draw(policy_map(pmdp.instantiate(theta), solve_at(pmdp, theta, objective).policy), "policy")
    assert figure.axes[0].get_xticks().tolist() == list(range(12))


def test_ends_of_plays_are_named_by_their_rarest_label():
    from rpl_agent.agent.output.plotting.policy_map import draw, policy_map
    from rpl_agent.core.solver import solve_at
    from rpl_envs.toy.frozen_lake import frozen_lake_model

    pmdp, objective = frozen_lake_model(["SFFF", "FHFH", "FFFH", "HFFG"])
    theta = np.array([1.0 / 3.0])
    shown = policy_map(pmdp.instantiate(theta), solve_at(pmdp, theta, objective).policy)
    assert ["".join(row) for row in shown.symbols.tolist()] == ["←↑↑↑", "←H←H", "↑↓←H", "H→↓G"]
    assert shown.ends == {"H": "hole", "G": "goal"}
    axes = draw(shown, "policy").axes[0]
    assert axes.yaxis_inverted() and {text.get_text() for text in axes.texts} == set("←↑→↓HG")
