"""Models from matrices, against plain linear algebra."""

import numpy as np
import pytest
import scipy

from rpl_agent import Objective, Policy, from_matrices, hide_parameters, solve
from rpl_agent.core.errors import ModelError


def random_mdp(rng, states=6, actions=3):
    P = rng.dirichlet(np.ones(states), (actions, states))
    P[P < 0.05] = 0.0
    return P / P.sum(axis=2, keepdims=True), rng.normal(size=(actions, states, states))


def value(P, mean, policy, discount):
    """(S,) by one linear solve; ``mean`` (S, A)."""
    rows = np.arange(len(policy))
    return np.linalg.solve(np.eye(len(policy)) - discount * P[policy, rows], mean[rows, policy])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shape", ["states", "actions", "transitions", "sparse"])
def test_values_are_those_of_policy_iteration(seed, shape):
    rng = np.random.default_rng(seed)
    P, R = random_mdp(rng)
    given = {
        "states": R[0, 0],
        "actions": R[0].T[:, :3],
        "transitions": R,
        "sparse": list(map(scipy.sparse.csr_array, R)),
    }
    mean = {"states": np.tile(R[0, 0][:, None], 3), "actions": R[0].T[:, :3]}.get(shape, np.einsum("ast,ast->sa", P, R))
    model = from_matrices(list(map(scipy.sparse.csr_array, P)) if shape == "sparse" else P, given[shape])
    policy = np.zeros(6, dtype=int)
    for _ in range(20):
        v = value(P, mean, policy, 0.9)
        policy = (mean + 0.9 * np.einsum("ast,t->sa", P, v)).argmax(axis=1)
    found = solve(model, Objective.discounted("reward", 0.9), precision=1e-9)
    assert found.lower <= v[0] + 1e-9 and v[0] - 1e-9 <= found.upper and found.gap < 1e-6
    own = solve(model, Objective.discounted("reward", 0.9), policy=Policy.deterministic(3 * np.arange(6) + 1))
    assert own.middle == pytest.approx(value(P, mean, np.ones(6, dtype=int), 0.9)[0], abs=1e-6)


def test_rows_of_thirds_sum_to_one_and_can_be_learned():
    third = np.full((1, 3, 3), 1 / 3)
    model = from_matrices(third, np.arange(3.0), labels={"last": [2]}, action_names=["go"])
    assert model.action_names == ("go",) and model.labels["last"].tolist() == [False, False, True]
    hidden = hide_parameters(model)
    assert hidden.pmdp.num_parameters == 6 and hidden.theta == pytest.approx([1 / 3] * 6)


def test_an_action_without_a_row_is_not_enabled():
    P = np.array([[[0.5, 0.5], [0.0, 1.0]], [[0.0, 0.0], [1.0, 0.0]]])
    assert np.diff(from_matrices(P).state_ptr).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("P", "R", "message"),
    [
        ([[[0.5, 0.4], [0.0, 1.0]]], None, "state 0, action 0 sum to 0.9"),
        ([[[1.5, -0.5], [0.0, 1.0]]], None, "state 0, action 0: -0.5 is not a probability"),
        ([[[0.0, 0.0], [0.0, 1.0]]], None, "state 0 has no transition"),
        ([[[np.nan, 1.0], [0.0, 1.0]]], None, "P must be matrices of finite numbers"),
        ([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]], None, "one shape"),
        ([[[1.0, 0.0], [0.0, 1.0]]], [1.0, 2.0, 3.0], r"the reward 'reward' has shape \(3,\)"),
        ([[[1.0, 0.0], [0.0, 1.0]]], np.zeros((2, 2, 2)), "has 2 matrices"),
        ([[[1.0, 0.0], [0.0, 1.0]]], "much", "the reward 'reward' must be an array of numbers"),
        ([[[1.0, 0.0], [0.0, 1.0]]], [], r"the reward 'reward' has shape \(0,\)"),
        (["much"], None, "P must be matrices of finite numbers"),
    ],
)
def test_wrong_matrices_are_named(P, R, message):
    with pytest.raises(ModelError, match=message):
        from_matrices(np.array(P), R)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"labels": {"goal": [1.5]}}, "state numbers from 0 to 1"),
        ({"labels": {"goal": "end"}}, "state numbers from 0 to 1"),
        ({"labels": ["goal"]}, "labels must map names to states"),
        ({"action_names": ["stay", "go"]}, None),
        ({"action_names": ["stay"]}, "1 action names for actions up to number 1"),
        ({"initial_state": 0.5}, "initial state 0.5 does not exist: states are 0 to 1"),
    ],
)
def test_wrong_names_and_numbers_beside_matrices_are_named(more, message):
    P = [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]]
    if message is None:
        assert from_matrices(P, **more).action_names == ("stay", "go")
        return
    with pytest.raises(ModelError, match=message):
        from_matrices(P, **more)
