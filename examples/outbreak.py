"""An outbreak in a ward or a class: from a handful of outbreaks to when measures pay, with a bound on the cases.

    python examples/outbreak.py [--people 30] [--outbreaks 5 20 100 500] [--plot outbreak.png]

The model is examples/models/outbreak.prism, Reed and Frost's chain binomial: each susceptible person escapes each
infectious one with probability 1 − p, so in a generation with k infectious people one is infected with probability 1
− (1 − p)^k. The measures of the generation determine p, which is unknown. People are checked one by one, as in an
attendance list, so every row is one person: escaped or infected. Each certificate is printed next to the result of
plain value iteration, which knows the probabilities. `ward` is a ward of eight as a Gymnasium environment, for an
agent that chooses the measures itself:

    rpl train examples/outbreak.py:ward --budget 200
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rpl_agent import Certificate, Config, Counts, Objective, ParametricMDP, Policy, Simulator, certify
from rpl_agent.formats import prism

MODEL = Path(__file__).with_name("models") / "outbreak.prism"
LEVELS = ("usual", "hygiene", "distance")
#: The chance of infection by one infectious person, with each measure. Chosen, as the prices in the model are.
CHANCE = {"usual": 0.12, "hygiene": 0.06, "distance": 0.02}
#: What a generation with a measure costs, in cases; as in the model.
PRICE = {"hygiene": 0.3, "distance": 1.0}
ACTIONS = (*LEVELS, "next", "recover", "over")  # in the order of the model
#: For both statements together: each may fail with half of it.
DELTA = 0.05


class Ward(gym.Env[tuple[int, ...], int]):
    """An outbreak in which every contact of a healthy and an infectious person is drawn; it does not use the model.

    Observed are (level, k, left, escaped, infected): the measure of this generation (0 until it is chosen), the
    infectious, those not yet checked on the attendance list, and the outcomes of those who were.
    """

    def __init__(self, people: int = 8):
        self.people = people
        self.action_space = spaces.Discrete(len(ACTIONS))
        self.observation_space = spaces.Tuple([spaces.Discrete(n) for n in (4, people + 1, people, people, people)])
        self.seen = (0, 1, people - 1, 0, 0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[int, ...], dict[str, Any]]:
        super().reset(seed=seed)
        self.seen = (0, 1, self.people - 1, 0, 0)
        return self.seen, {"action_mask": self.action_masks()}

    def action_masks(self) -> np.ndarray:
        level, k, left, *_ = self.seen
        allowed = ("next",) if level else ("over",) if k == 0 else LEVELS if left else ("recover",)
        return np.isin(ACTIONS, allowed).astype(np.int8)

    def step(self, action: int) -> tuple[tuple[int, ...], float, bool, bool, dict[str, Any]]:
        (level, k, left, escaped, infected), name, cost = self.seen, ACTIONS[action], 0.0
        if not self.action_masks()[action]:
            pass  # what the mask forbids changes nothing
        elif level == 0:
            cost = k + PRICE.get(name, 0.0)
            level, k = (0, 0) if name == "recover" else (1 + LEVELS.index(name), k)
        else:
            ill = bool((self.np_random.random(k) < CHANCE[LEVELS[level - 1]]).any())
            left, escaped, infected = left - 1, escaped + (not ill), infected + ill
            if left == 0:  # the generation is over
                level, k, left, escaped, infected = 0, infected, escaped, 0, 0
        self.seen = (level, k, left, escaped, infected)
        return self.seen, -cost, level == k == 0, False, {"action_mask": self.action_masks()}


def ward() -> tuple[Ward, dict[str, Any]]:
    """A ward of eight people with its model, for `rpl train` and `rpl check`."""
    env = Ward()
    return env, {"pmdp": outbreak(env.people), "objective": Objective.cost("cost", target="over")}


def outbreak(people: int) -> ParametricMDP:
    return prism.load(MODEL, constants={"N": people}).pmdp


def observe(pmdp: ParametricMDP, outbreaks: int, seed: int) -> Counts:
    """Attendance lists of outbreaks in which measures were taken at random, one outbreak after the other."""
    simulator = Simulator(pmdp.instantiate(CHANCE), pmdp.labels["over"], 100_000, seed)
    counts = Counts(pmdp, schedule="geometric")
    for _ in range(outbreaks):
        batch = np.zeros(pmdp.num_transitions, dtype=np.int64)
        simulator.run(Policy.uniform(pmdp), 1, batch)
        counts.add_batch(batch)
    return counts


def statements(pmdp: ParametricMDP, counts: Counts) -> tuple[Certificate, Certificate]:
    """(cost of the best rule, cases under that rule); both are true with probability ≥ 1 − DELTA."""
    config = Config(delta=DELTA / 2)
    rule = certify(pmdp, counts, Objective.cost("cost", target="over"), config)
    return rule, certify(pmdp, counts, Objective.cost("cases", target="over"), config, policy=rule.policy)


def value_iteration(pmdp: ParametricMDP, name: str, policy: Policy | None = None) -> float:
    """Least cost, or that of a policy, with known probabilities; no outbreak has more generations than people."""
    p, reward, v = pmdp.instantiate(CHANCE).probability, pmdp.row_reward(name), np.zeros(pmdp.num_states)
    while True:
        q = reward + np.add.reduceat(p * v[pmdp.successor], pmdp.row_ptr[:-1])
        best = np.minimum.reduceat(q, pmdp.state_ptr[:-1]) if policy is None else q[policy.rows]
        if np.array_equal(best, v):
            return float(v[pmdp.initial_state])
        v = best


def draw(path: str, pmdp: ParametricMDP, numbers: list[int], found: list[Certificate], best: float) -> None:
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2)
    left.fill_between(numbers, [c.lower for c in found], [c.upper for c in found], alpha=0.3, color="#d9480f")
    left.axhline(best, color="0.2", linestyle="--", label="optimum, chances known")
    left.set(xscale="log", xlabel="outbreaks seen", ylabel="cases + measures [cases]", title="certified cost")
    left.legend()
    infectious, susceptible = pmdp.variables["k"], pmdp.variables["left"]
    shown = np.full((infectious.max() + 1, susceptible.max() + 1), np.nan)
    for s in np.flatnonzero((pmdp.variables["level"] == 0) & (infectious > 0) & (susceptible > 0)):
        rule = pmdp.action_names[found[-1].policy.action(pmdp, s)]
        shown[infectious[s], susceptible[s]] = LEVELS.index(rule)
    colours = ListedColormap(["#e9ecef", "#ffd43b", "#d9480f"])
    picture = right.imshow(shown, origin="lower", cmap=colours, vmin=0, vmax=2)
    figure.colorbar(picture, ax=right, ticks=[1 / 3, 1, 5 / 3]).ax.set_yticklabels(LEVELS)
    right.set(xlabel="susceptible", ylabel="infectious", title="the certified rule")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=30)
    parser.add_argument("--outbreaks", type=int, nargs="+", default=[5, 20, 100, 500])
    parser.add_argument("--plot", metavar="FILE")
    arguments = parser.parse_args()
    pmdp = outbreak(arguments.people)
    best = value_iteration(pmdp, "cost")
    print(f"{arguments.people} people: {pmdp.num_states:,} states, {pmdp.num_transitions:,} transitions")
    print(f"optimum with known chances: {best:.2f}")
    print("outbreaks  persons seen   cost of the rule   cases under it    (truth)")
    found = []
    for outbreaks in arguments.outbreaks:
        rule, cases = statements(pmdp, observe(pmdp, outbreaks, seed=outbreaks))
        true = [value_iteration(pmdp, name, rule.policy) for name in ("cost", "cases")]
        print(
            f"{outbreaks:>9} {rule.samples:>13,}   [{rule.lower:5.2f}, {rule.upper:5.2f}]     "
            f"[{cases.lower:5.2f}, {cases.upper:5.2f}]   ({true[0]:.2f}, {true[1]:.2f})"
        )
        found.append(rule)
    most = math.ceil(10 * cases.upper) / 10
    print(
        f"\nTo the ward: with this rule an outbreak has at most {most} cases on average, the first one included, of "
        f"{arguments.people} people.\nSuch statements are wrong at most {100 * DELTA:.0f} times in 100."
    )
    if arguments.plot:
        draw(arguments.plot, pmdp, arguments.outbreaks, found, best)


if __name__ == "__main__":
    main()
