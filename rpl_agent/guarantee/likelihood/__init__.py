"""What the data leave of θ: the set that `rpl_agent.guarantee.checker` defines and proves, searched in floats.

Valid at every time, under any adaptive sampling, without a union bound over Λ; docs/guarantees.md has the theorems with
their proofs. Modules, in the order in which they are used:

- `checked_model`: the model as the checker reads it, and its joint coordinates, exactly;
- `line`: these coordinates, with the estimates at marks, bit for bit as the checker finds them;
- `joint_set`: the convex set C of the joint likelihood, with tangents and a ball;
- `enclosure`: the ball around what intervals, the domain and bets leave of C;
- `bets`: slabs in the direction of the value, at the price of one dimension (`slabs`), and
  confidence sequences for a mean without any model (`mean`);
- `region`: C, bets and intervals as a `Region`; `polynomial`: models of many coordinates;
  `block_set`: models whose parameters fall into blocks; `shares`: how they divide δ;
- `chart`, `estimate`: points of large likelihood, and edges of the domain that they touch;
- `refutation`: e-values against the model itself.
"""
