"""The joint likelihood region: valid at every time, under any adaptive sampling, without a union bound over Λ.

Data enter only through K_f, the number of observed transitions labelled f. For a window of steps (s, t],

    g(v) = −Σ_f K_f ln f[v],     Q = ∫ e^{−g} dW,     M_t(v) = Q / e^{−g(v)},

where W is a (sub-)probability on the domain that depends only on data up to s. Over windows j with different starts,
C = {v : ln Σ_j w_j Q_j e^{g_j(v)} ≤ ln 1/α} contains the truth at all times together with probability ≥ 1 − α.

docs/guarantees.md has the theorem with its proof. Modules, in the order in which they are used:

- `chart`: the data that a likelihood is a function of, the coordinates of the mixtures, points of large likelihood;
- `mixture`: the likelihood around them, and lower bounds on ln Q;
- `windows`: which windows, with which priors;
- `level_set`: C and its outer approximations; `region`: C as a `Region`;
- `bets`: slabs in the direction of the value, at the price of one dimension (`slabs`), and
  confidence sequences for a mean without any model (`mean`);
- `estimate`: the point estimate, and edges of the domain that it touches;
- `refutation`: e-values against the model itself.
"""
