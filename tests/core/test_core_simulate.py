"""Sampling in C against its slow twin, bit for bit: the generator, episodes, lanes, Q-learning."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from rpl_agent.core.model import Objective, Policy, Simulator, build
from rpl_agent.core.model.simulate import running_sums, sampling_world, seed_state
from rpl_agent.core.native import core
from rpl_envs import PMDPVectorEnv
from rpl_envs.benchmark import Benchmark
from tests.reference.simulate import SlowWorld, Xoshiro, splitmix64

THETA = np.array([0.625, 0.25])


def walk(state):
    if state in (0, 7):
        return {"stay": {state: 1}}
    return {
        "go": {state + 1: "p", state - 1: "1 - p"},
        "wait": {state: "q / 2", max(state - 2, 0): "q / 2", min(state + 3, 7): "1 - q"},
        "rest": {state: 1},
    }


def walks(pays: bool, starts: bool):
    """A walk between 0 and 7; ``pays`` on arrival and ``starts`` anywhere give it silent states."""
    start = {3: 0.25, 4: 0.25, 5: 0.5} if starts else 4
    reward = (lambda s, a, t: 0.1 * s + 1.7 * (t == 7)) if pays else (lambda s, a: 0.1 * s + (a == "go"))
    ends = {"end": lambda s: s in (0, 7)}
    return build(start, walk, domain=["p", "q"], rewards={"r": reward}, labels=ends)


MODELS = [walks(pays, starts) for pays in (False, True) for starts in (False, True)]


def world_of(pmdp, rng):
    """(slow twin, the arrays it is made of): random numbers of states and rows; ends 0 and 7 stop."""
    mdp = pmdp.instantiate(THETA)
    stop = np.array([value in (0, 7) for value in pmdp.state_values])
    arrays = mdp.probability, rng.random(pmdp.num_rows), rng.random(pmdp.num_states), stop
    return SlowWorld(pmdp, *arrays), mdp, arrays


def test_seeds_are_splitmix64():
    """The first numbers for the seed 1234567 are published with the algorithm."""
    assert list(islice(splitmix64(1234567), 3)) == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    for seed in (0, 1, 1234567, 2**63, 2**64 - 1, -1, 2**64 + 5):
        assert seed_state(seed).tolist() == list(islice(splitmix64(seed % 2**64), 4))


def test_draws_are_xoshiro256():
    state = seed_state(9)
    slow = Xoshiro(state)
    assert [core.next_double(state) for _ in range(2000)] == [slow() for _ in range(2000)]
    assert state.tolist() == slow.words


def test_running_sums_end_at_one_and_skip_what_has_no_weight():
    pointer = np.array([0, 3, 3, 5, 6])
    sums = running_sums(pointer, np.array([0.1, 0.2, 0.0, 0.0, 0.7, 0.0]))
    assert sums.tolist() == [0.1, 1.0, 1.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("model", range(4))
def test_episodes(model):
    pmdp = MODELS[model]
    for seed in range(5):
        rng = np.random.default_rng(seed)
        slow, mdp, (_, reward, arrival, stop) = world_of(pmdp, rng)
        weights = rng.random(pmdp.num_rows)
        weights /= np.add.reduceat(weights, pmdp.state_ptr[:-1])[pmdp.row_state]
        simulator = Simulator(mdp, stop, 12, seed, reward, arrival)
        uniform, counts = Xoshiro(simulator.state), np.zeros(pmdp.num_transitions, dtype=np.int64)
        batch = simulator.run(Policy.randomised(weights), 80, counts=counts)
        episodes = [slow.episode(weights, 12, uniform) for _ in range(80)]
        assert batch.returns.tolist() == [total for _, total, _, _ in episodes]
        assert batch.lengths.tolist() == [steps for _, _, steps, _ in episodes]
        assert (~stop[batch.last]).tolist() == [cut for *_, cut in episodes] and not batch.stopped
        assert batch.last.tolist() == [pmdp.successor[transitions[-1]] for transitions, *_ in episodes]
        seen = np.concatenate([transitions for transitions, *_ in episodes])
        assert np.array_equal(counts, np.bincount(seen, minlength=pmdp.num_transitions))
        assert simulator.state.tolist() == uniform.words


@pytest.mark.parametrize("model", range(4))
@pytest.mark.parametrize("horizon", [None, 3])
def test_what_episodes_are_worth(model, horizon):
    """By hand: gains of all but silent states on the way, in the first steps, discounted; or what the world pays."""
    pmdp, discount, policy = MODELS[model], 0.9, Policy.uniform(MODELS[model])
    for own in (False, True):
        rng = np.random.default_rng(model)
        slow, mdp, (_, reward, arrival, stop) = world_of(pmdp, rng)
        gain = rng.normal(size=pmdp.num_transitions)
        simulator = Simulator(mdp, stop, 12, 1, reward, arrival)
        simulator.set_worth(gain if own else None, discount, horizon)
        uniform = Xoshiro(simulator.state)
        batch = simulator.run(policy, 50)
        for k in range(50):
            transitions, *_, cut = slow.episode(policy.as_weights(pmdp), 12, uniform)
            steps = value = 0.0
            for t in transitions:
                row = pmdp.transition_row[t]
                silent = pmdp.is_silent[pmdp.row_state[row]]
                step = max(steps - silent, 0)
                if step < (horizon or 99):
                    value += discount**step * ((0.0 if silent and steps else gain[t]) if own else reward[row])
                steps += not silent
            if not own and not cut and steps <= (horizon or 99):
                value += discount ** (steps - 1) * arrival[pmdp.successor[transitions[-1]]]
            assert batch.values[k] == pytest.approx(value, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("model", range(4))
def test_q_learning(model):
    pmdp = MODELS[model]
    for seed in range(4):
        rng = np.random.default_rng(seed)
        slow, _, (probability, reward, arrival, stop) = world_of(pmdp, rng)
        sums = running_sums(pmdp.row_ptr, probability)
        world = sampling_world(pmdp, sums, reward, arrival, stop)
        state, terminal = seed_state(seed), stop & (arrival > 0.5)
        uniform = Xoshiro(state)
        how = core.Learning(decay=40.0, epsilon_min=0.05, omega=0.75, discount=0.9)
        q, visits = np.zeros(pmdp.num_rows), np.zeros(pmdp.num_rows, dtype=np.int64)
        steps = core.q_episodes(world, how, terminal, 15, 10, 60, state, q, visits)
        slow_q, slow_visits, slow_steps = [0.0] * pmdp.num_rows, [0] * pmdp.num_rows, 0
        for k in range(10, 70):
            epsilon = max(0.05, 1.0 - k / 40.0)
            slow_steps += slow.q_episode(slow_q, slow_visits, epsilon, 0.75, 0.9, terminal, 15, uniform)
        assert steps == slow_steps and visits.tolist() == slow_visits and state.tolist() == uniform.words
        assert q.tolist() == slow_q


def lanes_by_hand(envs, slow, steps, choose):
    """What `envs` did in so many steps against the slow twin, lane by lane; each lane is a random walk by itself."""
    mode, limit, n = envs.metadata["autoreset_mode"], envs.max_episode_steps, envs.num_envs
    states, info = envs.reset(seed=5)
    uniform = [Xoshiro(seed_state(5 + i)) for i in range(n)]
    begin = lambda i: slow.pass_silent(slow.pmdp.initial_state, uniform[i])[0]  # noqa: E731
    here, lengths, ended = [begin(i) for i in range(n)], [0] * n, [False] * n
    assert states.tolist() == here
    for _ in range(steps):
        masks = info["action_mask"]
        for i in range(n):
            assert np.flatnonzero(masks[i]).tolist() == sorted(slow.pmdp.action[list(slow.choices(here[i]))])
        actions = choose(masks)
        states, rewards, terminated, truncated, info = envs.step(actions)
        for i in range(n):
            if mode is AutoresetMode.NEXT_STEP and ended[i]:
                here[i], lengths[i], ended[i] = begin(i), 0, False
                assert (rewards[i], terminated[i], truncated[i], states[i]) == (0.0, False, False, here[i])
                continue
            row = next(r for r in slow.choices(here[i]) if slow.pmdp.action[r] == actions[i])
            here[i], paid = slow.pass_silent(slow.pmdp.successor[slow.transition(row, uniform[i]())], uniform[i])
            lengths[i] += 1
            assert rewards[i] == slow.reward[row] + paid + slow.arrival[here[i]]
            assert terminated[i] == slow.stop[here[i]] and truncated[i] == (0 < limit <= lengths[i])
            ended[i] = bool(terminated[i] or truncated[i])
            if ended[i] and mode is AutoresetMode.SAME_STEP:
                assert info["final_info"]["state"][i] == here[i]
                here[i], lengths[i] = begin(i), 0
            assert states[i] == here[i]
    assert [u.words for u in uniform] == envs._rng.tolist()


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("limit", [-1, 9])
def test_lanes(mode, limit):
    rng = np.random.default_rng(0)
    choose = lambda masks: (masks * rng.random(masks.shape)).argmax(1)  # noqa: E731
    ends = Objective.reward("r", target="end")
    made = [Benchmark(pmdp, ends, tuple(THETA), 40) for pmdp in MODELS]
    for source in (*made, "Betting-25", "Aircraft-20x10"):
        envs = PMDPVectorEnv(6, source, autoreset_mode=mode, max_episode_steps=limit)
        here = envs._world
        slow = SlowWorld(envs.pmdp, here._mdp.probability, here.reward, here.arrival, here.terminal)
        lanes_by_hand(envs, slow, 60, choose)


def test_lanes_do_not_depend_on_the_number_of_threads():
    lanes, ends = 20_000, []
    for threads in (1, 2, 5):
        envs = PMDPVectorEnv(lanes, "Betting-25", autoreset_mode=AutoresetMode.SAME_STEP)
        envs.reset(seed=8)
        whole, flags = np.empty(lanes, dtype=np.int64), [np.empty(lanes, dtype=bool) for _ in range(2)]
        rewards, got = np.empty(lanes), []
        for _ in range(30):
            envs._lanes.row[:] = envs.pmdp.state_ptr[envs._states + 1] - 1  # the boldest bet
            core.step_lanes(envs._sampled, envs._lanes, True, threads, whole, rewards, *flags)
            got.append((envs._states.tobytes(), whole.tobytes(), rewards.tobytes(), *(f.tobytes() for f in flags)))
        ends.append((got, envs._rng.tobytes()))
    assert ends[0] == ends[1] == ends[2]
