"""Worlds without a model: bounds on the best value and on a policy's value from nothing but a range of returns.

*Setting.* Observations are the states of a Markov decision process with finitely many actions. Which states exist, what
follows what, with which probabilities and rewards, is unknown. Known are a discount γ or a horizon, and a range
[low, high] that contains the return of every play from every state; V = 0 after an end. So for every step and every
policy, low ≤ r + γV(s') ≤ high. Write x = (r + γV*(s') − low) / (high − low), a number in [0, 1].

*Theorem 1 (no policy returns more).* Fix stakes b_1 … b_m in (0, 1) and weights w_i of sum at most 1, for ever
(`stakes`). For numbers x_1 … x_n of one row (s, a) let

    u(x; α) = inf{ m : Σ_i w_i Π_k (1 + b_i (m − x_k) / (1 − m)) ≥ 1/α },    1 if there is none.

Number states in the order of their first visit and give every row of the k-th state the share α_k, with a sum over all
rows of at most δ. Let U = high everywhere, and replace U(s) by the largest u of its rows, at the numbers that U gives,
whenever that is less; rows never tried keep `high`. Then V* ≤ U always, with probability ≥ 1 − δ, whatever chooses
the actions.

*Proof.* V* is one fixed function. At the numbers x* that V* gives, and at m* = E x* (the scaled Q*(s, a)), every factor
is ≥ 0, because x* ≤ 1 and b < 1, and has mean 1 given the past. By Ville's inequality the mixtures of all rows
stay below 1/α at all times, except with probability δ. Then m* ≤ u(x*; α), because (m − x)/(1 − m) increases in m. It
decreases in x, so V* ≤ U gives x* ≤ x(U) and Q*(s, a) ≤ u(x*) ≤ u(x(U)). ∎

Every iterate is a bound, so sweeps may stop anywhere, and each row may keep the least bound it ever had. Nothing but
counts of (s, a, r, s', end) is used. A share must be fixed before the row's first outcome: hence the order of first
visits. Stakes must not depend on data, or U could not take the place of V*. With a horizon, V* depends on the steps to
go: one function and one share for each number of them, all from the same counts (`values.UpperValues`). The start is
one more row, with the numbers V*(s0). A truncated step counts with its successor like any other.

*Theorem 2 (the returned policy).* Fix a policy π; from then on play it in a planned share of the episodes, in the order
of their starts. Episode k earns G_k until it ends or is cut, after T_k steps in state s_k. Let Lo ≤ V^π be Theorem 1
turned round, from the steps of π's rows after π was fixed. Then u at the numbers G_k + γ^T_k Lo(s_k), turned round,
bounds V^π from below (`played.PlayedPolicy`). So it does with Π_k (1 + c_k (m − x_k) / (1 − m)) in place of the
mixture, if c_k in (0, 1) was chosen before episode k began.

*Proof.* G_k + γ^T_k V^π(s_k) lies in [low, high] and has mean V^π given what was seen before the episode, because the
time of the cut depends on the past only. So every factor has mean 1 given the past, whatever of the past c_k depends
on. The rest is as above: using Lo(s_k) ≤ V^π(s_k) only lowers the bound, since c_k stays what it was. ∎

Planned stakes c_k need no mixture, and so no weights: as many plays are to come, and as spread as those so far, one
stake is best (`stakes.plan_stake`). Rows have fixed ones, because their numbers with V* are never seen: a plan made
from numbers with U would be another plan once U falls.

Every episode that is begun must count: dropping some could bias the mean. Where several run at once, the bound
uses the episodes before the first that is still running. Every policy that is ever fixed has a share of δ of its own
(`evidence.ledger.OpenLedger`).
"""
