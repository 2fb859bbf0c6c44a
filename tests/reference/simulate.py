"""Slow, obvious twins of sampling: Python's integers for the generator, one step at a time for the rest."""

from __future__ import annotations

from itertools import accumulate

WORD = 2**64


def splitmix64(seed):
    """Outputs of splitmix64 (Steele, Lea and Flood 2014), without end."""
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) % WORD
        z = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 % WORD
        z = (z ^ z >> 27) * 0x94D049BB133111EB % WORD
        yield z ^ z >> 31


class Xoshiro:
    """xoshiro256++ (Blackman and Vigna 2019)."""

    def __init__(self, words):
        self.words = [int(word) for word in words]

    def __call__(self):
        """Uniform in [0, 1) with 53 bits."""
        a, b, c, d = self.words
        result = (self._rotate((a + d) % WORD, 23) + a) % WORD
        c, d = c ^ a, d ^ b
        self.words = [a ^ d, b ^ c, c ^ (b << 17) % WORD, self._rotate(d, 45)]
        return (result >> 11) / 2**53

    @staticmethod
    def _rotate(x, k):
        return (x << k | x >> 64 - k) % WORD


def choose(weights, u):
    """Index of the weight under which u falls; never one of weight 0."""
    last = max((k for k, weight in enumerate(weights) if weight > 0), default=0)
    return next((k for k, total in enumerate(accumulate(weights)) if total > u and k < last), last)


class SlowWorld:
    """An MDP to walk in: `pmdp` with these probabilities, rewards on leaving by a row and on arriving in a state."""

    def __init__(self, pmdp, probability, reward, arrival, stop):
        self.pmdp, self.probability, self.reward, self.arrival, self.stop = pmdp, probability, reward, arrival, stop

    def choices(self, state):
        return range(self.pmdp.state_ptr[state], self.pmdp.state_ptr[state + 1])

    def outcomes(self, row):
        return range(self.pmdp.row_ptr[row], self.pmdp.row_ptr[row + 1])

    def transition(self, row, u):
        outcomes = self.outcomes(row)
        return outcomes[choose([self.probability[t] for t in outcomes], u)]

    def pass_silent(self, state, uniform):
        """(state that is seen, what is paid on the way to it)."""
        paid = 0.0
        while self.pmdp.is_silent[state]:
            row = self.pmdp.state_ptr[state]
            paid += self.reward[row]
            u = uniform() if len(self.outcomes(row)) > 1 else 0.0
            state = self.pmdp.successor[self.transition(row, u)]
        return state, paid

    def episode(self, weights, max_steps, uniform):
        """(transitions, return, steps, cut) of one episode under a policy with these weights of rows."""
        state, total, steps, seen = self.pmdp.initial_state, 0.0, 0, []
        while not self.stop[state] and (steps < max_steps or self.pmdp.is_silent[state]):
            choices = self.choices(state)
            row = choices[choose([weights[r] for r in choices], uniform())]
            seen.append(self.transition(row, uniform()))
            total += self.reward[row]
            steps += not self.pmdp.is_silent[state]
            state = self.pmdp.successor[seen[-1]]
        if self.stop[state] and steps > 0:
            total += self.arrival[state]
        return seen, total, steps, not self.stop[state]

    def q_episode(self, q, visits, epsilon, omega, discount, terminal, max_steps, uniform):
        """The steps of one episode of Q-learning, which changes ``q`` and ``visits``."""
        state, steps = self.pmdp.initial_state, 0
        while not self.stop[state] and (steps < max_steps or self.pmdp.is_silent[state]):
            choices = self.choices(state)
            explores = uniform() < epsilon
            row = choices[int(uniform() * len(choices))] if explores else max(choices, key=lambda r: (q[r], -r))
            following = self.pmdp.successor[self.transition(row, uniform())]
            goal = self.reward[row] + self.arrival[following]
            if not terminal[following]:
                goal += discount * max(q[r] for r in self.choices(following))
            visits[row] += 1
            q[row] += float(visits[row]) ** -omega * (goal - q[row])
            steps += not self.pmdp.is_silent[state]
            state = following
        return steps
