"""Mutants that may survive: none of them can make a bound false. The others must be noticed by a test."""

from __future__ import annotations

from tests.mutants.changes import Mutant

SEARCH = "any numbers are valid here: they only decide how tight a bound is"
WORDS = "only the words of a message"
CHECKER = "rpl_agent/guarantee/checker.py"
OPEN = "rpl_agent/guarantee/open_checker.py"
SOLVED = "rpl_agent/core/solver/check.py"
RESIDUAL = "rpl_agent/core/native/residual.c"
PIPELINE = "rpl_agent/guarantee/pipeline.py"
STORED = "rpl_agent/agent/storage"
AIMS, MEAN, SLABS = (f"rpl_agent/guarantee/likelihood/bets/{name}.py" for name in ("aim", "mean", "slabs"))
OWN_AIM = "the checker finds its own payoffs: a slab of others is refused, and any payoffs are valid"
GENEROUS = "the error of a sum is bounded generously, with this change, too"
FLOATS = "a slab in floats, where the search begins: the numbers of a proof are the checker's own"
SHORTCUT = "only a shortcut: what follows comes to the same"
GUARDED = "2 units of 2^-160, where the enclosure allows for 2^10"
SCRIPT = "the script, which tests run as a process of its own: what is loaded here never reads it"
SAME = "a shift by 0 either way"
USED = "the number that is shown is the one that is used, however it is rounded"
LENGTHS = "all states have as many rows, with any number of steps to go"
ONE_LIST = "without a horizon there is one list of values"
SIDES = "it is 1 or −1"
LIMIT = "far above what proofs need: it protects the reader's time, whatever its last digit is"
KEPT = "defaults, which a loaded class keeps: the harness cannot change them"
LINE = "only the line that a warning names"
FIRST = "where nothing was written yet, a write is due in any case"
SCRATCH = "an entry of scratch more, which is written before it is read"
RAISED = "only proposes: `step_residuals` proves what is raised"
CONVERGES = "the argument of the series stays within 1/3, where its error is bounded"
CONSTANT = (
    "a class that is never left has one value, so none of its rows is strict, by itself or as part of the policy; and "
    "where a state is strict, all of its rows are"
)
SEMIDEFINITE = "else if (checked && r > 2 && room > 0.0 && is_semidefinite(r, M, room, M + triangle(r)))"
TURNS = "double *here = mass + (steps - 1 - k) % 2 * states, *after = mass + (steps - k) % 2 * states;"
#: Functions and constants all of whose mutants may survive, except those that drop a check.
FUNCTIONS: dict[str, str] = {
    f"{CHECKER} Coordinates.fit": SEARCH,
    f"{CHECKER} Coordinates.next_fit": SEARCH,
    f"{CHECKER} Coordinates.spread": SEARCH,
    f"{CHECKER} Coordinates.particles": SEARCH,
    f"{CHECKER} Coordinates.information": SEARCH,
    f"{CHECKER} stake": SEARCH,
    f"{CHECKER} Bets._aim": SEARCH,
    f"{CHECKER} Bets._aim.solve": SEARCH,
    f"{CHECKER} rivals.along": SEARCH,
    f"{CHECKER} Bets._slope": SEARCH,
    f"{CHECKER} Bets._plan": SEARCH,
    f"{CHECKER} Data.fits": SEARCH,
    f"{CHECKER} BITS": "enclosures hold at any scale",
    f"{CHECKER} PARTICLES": SEARCH,
    f"{CHECKER} WALL": SEARCH,
    f"{CHECKER} STEPS": SEARCH,
    f"{CHECKER} MOST_COORDINATES, MOST_OF_BLOCKS": LIMIT,
    f"{CHECKER} MOST_BYTES, MOST_ENTRIES": LIMIT,
    f"{CHECKER} MOST_DIGITS, MOST_DEGREE, MOST_BITS": LIMIT,
    f"{CHECKER} MOST_STEPS, MOST_WORK, MOST_MARKS, MOST_LOGARITHMS": LIMIT,
    f"{CHECKER} MOST_PIECES": LIMIT,
    f"{CHECKER} LONGEST": WORDS,
    f"{CHECKER} shortened": WORDS,
    f"{AIMS} next_aim": OWN_AIM,
    f"{AIMS} _slopes": OWN_AIM,
    f"{AIMS} _Information.__init__": OWN_AIM,
    f"{AIMS} BetWorld.__init__": OWN_AIM,
    f"{AIMS} BetWorld.slope": OWN_AIM,
    f"{MEAN} cumulative_bets": "any stake that is fixed before its number is valid",
    f"{SLABS} Slabs.tightest": "any two of the slabs hold",
    f"{SLABS} Wealth": KEPT,
    f"{SLABS} Wealth.after": FLOATS,
    f"{SLABS} slabs": FLOATS,
    f"{SLABS} MARGIN": "a wider margin is a wider slab, and the checker's lies inside of either",
    f"{PIPELINE} Config": f"{KEPT}, and a test names them",
    f"{RESIDUAL} raise_steps": RAISED,
    f"{RESIDUAL} error_share": RAISED,
    f"{SOLVED} _name": WORDS,
    f"{SOLVED} _Claim.side": WORDS,
}
#: Single mutants, by name.
NAMES: dict[str, str] = {
    f"{CHECKER} : 1 → (0)": SCRIPT,
    f"{CHECKER} : 1 → 2": SCRIPT,
    f"{CHECKER} _atanh_series: 0 → (-1)": GUARDED,
    f"{CHECKER} _atanh_series: 0 → 1": GUARDED,
    f"{CHECKER} ln: e >= 0 → (e > 0)": SAME,
    f"{CHECKER} ln: 0 → 1 (2)": SAME,
    f"{CHECKER} ln: 3 → (2)": CONVERGES,
    f"{CHECKER} ln: 3 → 4": CONVERGES,
    f"{CHECKER} ln: 3 * n > 4 * d → (3 * n >= 4 * d)": CONVERGES,
    f"{CHECKER} ln: 4 → (3)": CONVERGES,
    f"{CHECKER} ln: 4 → 5": CONVERGES,
    f"{CHECKER} ln: 3 → (2) (2)": CONVERGES,
    f"{CHECKER} ln: 3 → 4 (2)": CONVERGES,
    f"{CHECKER} ln: 3 * n < 2 * d → (3 * n <= 2 * d)": CONVERGES,
    f"{CHECKER} ln: 2 → (1) (2)": CONVERGES,
    f"{CHECKER} ln: 2 → 3 (2)": CONVERGES,
    f"{CHECKER} ln_factorial: n < 256 → (n <= 256)": "both ways enclose ln 256!",
    f"{CHECKER} ln_factorial: 256 → 257": "both ways enclose ln 256!",
    f"{CHECKER} Model.__init__: 0 → (-1) (4)": "the value of a constant is read by stakes only",
    f"{CHECKER} Model.__init__: 0 → 1 (4)": "the value of a constant is read by stakes only",
    f"{CHECKER} Objective.__init__: model.labels[data[\"avoid\"]] - target → (model.labels[data['avoid']])": (
        "the value of a target is written after that of states to avoid"
    ),
    f"{CHECKER} Objective._times: 1 → 2": "no state has a negative number",
    f"{CHECKER} Sum.__init__: 0 → (-1) (3)": "sets that are all the same are those of the last part, too",
    f"{CHECKER} Sum.__init__: 0 → (-1) (6)": "sets that are all the same are those of the last part, too",
    f"{CHECKER} Policy.at: 1 → 2 (2)": "weights are divided by their sum",
    f"{CHECKER} Policy.at: weight > 0 → (weight >= 0)": "weights of 0 are left out before",
    f"{CHECKER} Intervals.__init__: min → max": "any of the factors makes lines of one polynomial comparable",
    f"{CHECKER} Intervals._propagate: 2 → (1)": "each round alone is sound",
    f"{CHECKER} Intervals._propagate: 2 → 3": "each round alone is sound",
    f"{CHECKER} Intervals.single: 1 → 2": "no expression has a negative number",
    f"{CHECKER} Unions.__init__: min → max": "any term of a part finds it",
    f"{CHECKER} Unions.__init__: table[g].items() <= wanted.items() → (table[g].items() < wanted.items())": (
        "a row with the event itself has it alone"
    ),
    f"{CHECKER} Unions.__init__: len(parts) > 1 → (len(parts) >= 1)": "a single part that adds up to an event is it",
    f"{CHECKER} Unions.__init__: 1 → (0) (4)": "a single part that adds up to an event is it",
    f"{CHECKER} Known.enclose: 0 → (-1)": "there is one coordinate",
    f"{CHECKER} Known.enclose: 0 → (-1) (2)": "there is one coordinate",
    f"{CHECKER} Known.enclose: 0 → (-1) (3)": "there is one coordinate",
    f"{CHECKER} Claim.plays_end: 0 → (-1)": "without a horizon there is one rule for all steps",
    f"{CHECKER} Claim.plays_end: 0 → 1": "without a horizon there is one rule for all steps",
    f"{CHECKER} Claim.plays_end: 0 → (-1) (2)": WORDS,
    f"{CHECKER} Claim.harmful: 0 → (-1)": "without a horizon there is one list of values",
    f"{CHECKER} Claim.inequalities: 0 → (-1) (3)": "states that are active have a number",
    f"{CHECKER} Claim.inequalities: 0 → 1 (3)": "states that are active have a number",
    f"{CHECKER} Claim.inequalities: model.name[group[0][0]] + "
    '(f", {k} steps to go" if objective.horizon is not None else "") → (model.name[group[0][0]])': WORDS,
    f"{CHECKER} Claim.inequalities: 0 → (-1) (5)": WORDS,
    f"{CHECKER} Claim.inequalities: 10 → (9)": WORDS,
    f"{CHECKER} Claim.inequalities: 10 → 11": WORDS,
    f"{CHECKER} Claim.inequalities: 99 → (98)": WORDS,
    f"{CHECKER} Claim.inequalities: 99 → 100": WORDS,
    f"{CHECKER} Claim.successors: 1 → (0) (2)": SHORTCUT,
    f"{CHECKER} Claim._quadratic: any(g) and any(slope) → ((any(g)) or (any(slope)))": SHORTCUT,
    f"{CHECKER} Claim._quadratic: 0 → (-1) (4)": "the rough bound, which is larger, holds as well",
    f"{CHECKER} Claim._quadratic: 0 → 1 (4)": "where the linear part is 0, the division by it ends the check",
    f"{CHECKER} is_positive: 2 → 3": SEARCH,
    f"{CHECKER} is_positive: 80 → (79)": SEARCH,
    f"{CHECKER} is_positive: 80 → 81": SEARCH,
    f"{CHECKER} is_positive: max → min": SEARCH,
    f"{CHECKER} is_positive: 0 → (-1)": "of a matrix without rows",
    f"{CHECKER} is_positive: 0 → 1": "of a matrix without rows",
    f"{CHECKER} is_positive: 1 → 2": "any unit serves a matrix of zeros",
    f"{CHECKER} is_positive: pivot[k] > 0 → (pivot[k] >= 0)": "a root of 0 ends the check",
    f"{CHECKER} is_positive: 0 → (-1) (2)": "a root of a negative number ends the check",
    f"{CHECKER} is_positive: 0 → 1 (2)": SEARCH,
    f"{CHECKER} is_positive: 1 → 2 (2)": "any W proves it",
    f"{CHECKER} is_positive: 2.0 → (1.0)": "any W proves it",
    f"{CHECKER} is_positive: 2.0 → 3.0": "any W proves it",
    f"{CHECKER} is_positive: 90 → (89)": "any W proves it",
    f"{CHECKER} is_positive: 90 → 91": "any W proves it",
    f"{CHECKER} is_positive: 2 * sum(map(mul, h, w)) > sum(abs(sum(map(mul, h, v))) for v in W) → "
    "(2 * sum(map(mul, h, w)) >= sum((abs(sum(map(mul, h, v))) for v in W)))": (
        "the diagonal is lowered by more than rounding can explain"
    ),
    f"{CHECKER} at_most: 0 → (-1)": "all claims are about one region",
    f"{CHECKER} at_most: 0 → (-1) (3)": "that there is a number is checked before",
    f"{CHECKER} at_most: 0 → 1 (3)": "that there is a number is checked before",
    f"{CHECKER} check_optimal: 0 → (-1)": "of one list of values",
    f"{CHECKER} check_optimal: 0 → (-1) (2)": "without a horizon there is one rule for all steps",
    f"{CHECKER} check_optimal: 0 → 1 (2)": "without a horizon there is one rule for all steps",
    f"{CHECKER} check_optimal: 0 → (-1) (3)": "a policy has one group of rows",
    f"{CHECKER} check_optimal: 0 → (-1) (4)": "groups of more than one row are refused below",
    f"{CHECKER} check_optimal.is_left: 0 → (-1)": "that there is a number is checked before",
    f"{CHECKER} check_optimal.is_left: 0 → 1": "that there is a number is checked before",
    f"{CHECKER} check_optimal: 1 → (0) (5)": "a state without a number is refused in any case",
    f"{CHECKER} check_optimal: 1 → 2 (5)": "a state without a number is refused in any case",
    f"{CHECKER} Data._read_marks: 2 → 3": "there are two lists",
    f"{CHECKER} Likelihood.cut: 1 → 2": "the list is cut to length at the first expression",
    f"{CHECKER} Bets.cuts: 1 → 2": "the list is cut to length at the first expression",
    f"{CHECKER} Likelihood.check_ball: x + K * (phi * e - 1) * y → (x - K * (phi * e - 1) * y)": (
        "only the length of the vector counts"
    ),
    f"{CHECKER} Likelihood._of_blocks: 0 → 1 (7)": "a factor of 1",
    f"{CHECKER} Likelihood._of_blocks: 1 → 2 (6)": "a unit more, against the bound",
    f"{CHECKER} Likelihood._of_blocks: 1 → 2 (10)": "any number from 1 on is refused",
    f"{CHECKER} Statement.__init__: 0 → (-1)": "the length of the list counts",
    f"{CHECKER} Statement.__init__: 0 → 1": "the length of the list counts",
    f"{CHECKER} read: 1 → 2": "a byte more is read, and the file refused all the same",
    f"{CHECKER} main: 0 → (-1)": "there is one argument",
    f"{CHECKER} Bets: 1 → (0)": SEARCH,
    f"{CHECKER} Bets: 1 → 2": SEARCH,
    f"{CHECKER} Bets: 26 → (25)": SEARCH,
    f"{CHECKER} Bets: 26 → 27": SEARCH,
    f"{CHECKER} Bets.payoffs: 4 → (3)": SEARCH,
    f"{CHECKER} Bets.payoffs: 4 → 5": SEARCH,
    f"{CHECKER} Bets.payoffs: 5 → (4)": SEARCH,
    f"{CHECKER} Bets.payoffs: 5 → 6": SEARCH,
    f"{CHECKER} Bets.cuts: 1 → (0) (4)": "the share of the last moment is not used",
    f"{CHECKER} Bets.cuts: 1 → 2 (4)": "the share of the last moment is not used",
    f"{CHECKER} Bets.cuts: hits and u → ((hits) or (u))": "adds logarithms of 1, rounded against the bet",
    f"{SLABS} _nats: 1 → (0)": FLOATS,
    f"{SLABS} _next: placed is not None and last is not None → ((placed is not None) or (last is not None))": (
        "there are both or none"
    ),
    f"{SLABS} _since: last.trials is not None and now.trials is not None → "
    "((last.trials is not None) or (now.trials is not None))": "there are both or none",
    f"{MEAN} mean_interval: abs(low) + abs(high) → (abs(low))": "the room of the sums, a share of the range, covers it",
    f"{MEAN} mean_interval: 8.0 → (7.0)": GENEROUS,
    f"{MEAN} mean_interval: 8.0 → 9.0": GENEROUS,
    f"{MEAN} mean_interval: 8.0 → (7.0) (2)": GENEROUS,
    f"{MEAN} mean_interval: 8.0 → 9.0 (2)": GENEROUS,
    f"{MEAN} mean_interval: n + 1.0 → (n - 1.0)": GENEROUS,
    f"{MEAN} mean_interval: n + 1.0 → (n)": GENEROUS,
    f"{MEAN} mean_interval: 1.0 → (0.0)": GENEROUS,
    f"{MEAN} mean_interval: 1.0 → 2.0": GENEROUS,
    f"{MEAN} mean_interval: 0.0 → (-1.0)": "cut at the range in any case",
    f"{MEAN} mean_interval: 1.0 → 2.0 (2)": "cut at the range in any case",
    f"{MEAN} mean_interval: 0.0 → (-1.0) (2)": "cut at the range in any case",
    f"{MEAN} mean_interval: 1.0 → 2.0 (3)": "cut at the range in any case",
    f"{OPEN} command: 1 → (0)": SCRIPT,
    f"{OPEN} command: 1 → 2": SCRIPT,
    f"{OPEN} main: 0 → (-1)": "there is one argument",
    f"{OPEN} Statement._after: value > 0 → (value >= 0)": "0 times either end",
    f"{OPEN} Statement._after: 0 → (-1) (3)": "0 times either end",
    f"{OPEN} times: extra > 0 → (extra >= 0)": SAME,
    f"{OPEN} times: 0 → (-1) (3)": SAME,
    f"{OPEN} times: 0 → 1 (3)": "a product may have one bit more",
    f"{OPEN} Bet.__init__: 5 → (4)": SEARCH,
    f"{OPEN} Bet.__init__: 5 → 6": SEARCH,
    f"{OPEN} Bet.shows: 0 → 1 (2)": "refuses a number that is 2^-128 below the ceiling",
    f"{OPEN} Bet.shows: k - self.first → (k + self.first)": SEARCH,
    f"{OPEN} Bet.shows: k - self.first → (k)": SEARCH,
    f"{OPEN} whole_part: 1 → 2 (2)": "wealth is cut where no share needs more",
    f"{OPEN} whole_part: 16 → (15)": "wealth is cut where no share needs more",
    f"{OPEN} whole_part: 16 → 17": "wealth is cut where no share needs more",
    f"{OPEN} whole_part: shift >= 0 → (shift > 0)": SAME,
    f"{OPEN} whole_part: 0 → (-1) (2)": "a shift by a negative number ends the check",
    f"{OPEN} whole_part: 0 → 1 (2)": SAME,
    f"{OPEN} whole_part: 1 → 2 (3)": "nothing is left of 96 bits",
    f"{OPEN} whole_part: 16 → (15) (2)": "nothing is left of 96 bits",
    f"{OPEN} whole_part: 16 → 17 (2)": "nothing is left of 96 bits",
    f"{OPEN} Assumed.__init__: max → min": LIMIT,
    f"{OPEN} Assumed.__init__: 1 → (0) (4)": LIMIT,
    f"{OPEN} Assumed.__init__: 1 → 2 (4)": LIMIT,
    f"{OPEN} Assumed._sums: 0 → (-1)": "rewards bound nothing there, and are not asked for",
    f"{OPEN} Assumed._sums: 0 → 1": "rewards bound nothing there, and are not asked for",
    f"{OPEN} Assumed._sums: len(found) < self.layers → (len(found) <= self.layers)": "the last is not read",
    f"{OPEN} Assumed.range_of: low >= 0 → (low > 0)": "0 times a weight is 0",
    f"{OPEN} Assumed.range_of: high <= 0 → (high < 0)": "0 times a weight is 0",
    f"{OPEN} Values.__init__: 0 → (-1)": LENGTHS,
    f"{OPEN} Values.__init__: 0 → (-1) (2)": LENGTHS,
    f"{OPEN} Values.__init__: 1 → (0)": "there is an action",
    f"{OPEN} Values.__init__: 0 → (-1) (3)": LENGTHS,
    f"{OPEN} Values.__init__: 0 → (-1) (4)": LENGTHS,
    f"{OPEN} Values.ceilings: self.turned > 0 → (self.turned >= 0)": SIDES,
    f"{OPEN} Values.ceilings: 0 → (-1)": SIDES,
    f"{OPEN} Values.ceilings: 0 → (-1) (3)": LENGTHS,
    f"{OPEN} Values.ceilings: 0 → (-1) (4)": LENGTHS,
    f"{OPEN} Values.holds: self.turned < 0 → (self.turned <= 0)": SIDES,
    f"{OPEN} Values.holds: 0 → 1 (2)": SIDES,
    f"{OPEN} Values.holds: 0 → (-1) (3)": "there is one outcome",
    f"{OPEN} Values.cap: self.successors is not None and self.assumed.rewards is not None → "
    "((self.successors is not None) or (self.assumed.rewards is not None))": "both are there, or the file is refused",
    f"{OPEN} Values._strange: 0 → (-1)": ONE_LIST,
    f"{OPEN} Values.layered: 0 → (-1) (2)": LENGTHS,
    f"{OPEN} Values.layered: down → up": USED,
    f"{OPEN} Values.settled: 0 → (-1)": ONE_LIST,
    f"{OPEN} Values.settled: 0 → (-1) (2)": ONE_LIST,
    f"{OPEN} Values.settled: down → up": USED,
    f"{OPEN} Values.settled: 0 → (-1) (3)": ONE_LIST,
    f"{OPEN} Values.settled: 0 → 1 (3)": ONE_LIST,
    f"{OPEN} Values.settled: 0 → (-1) (4)": ONE_LIST,
    f'{OPEN} Statement._rest: whole(k, 0, "an outcome") < len(since) → '
    "(whole(k, 0, 'an outcome') <= len(since))": "an outcome that does not exist ends the check",
    f"{OPEN} Statement._rest: 0 → (-1) (3)": "another name of the last outcome, which is counted once all the same",
    f"{OPEN} Statement._rest: 1 → (0)": "a count of 0 adds nothing",
    f"{OPEN} Statement.upper: down → up": USED,
    f"{OPEN} Statement.lower: up → down": USED,
    f"{PIPELINE} uncertainty_from: 3 → (2)": LINE,
    f"{PIPELINE} uncertainty_from: 3 → 4": LINE,
    f"{STORED}/checkpoint.py pack: sum(map(len, members.values())) > _most_bytes(len(packed)) → "
    "(sum(map(len, members.values())) >= _most_bytes(len(packed)))": LIMIT,
    f"{STORED}/checkpoint.py _read_members: total > _most_bytes(size) → (total >= _most_bytes(size))": LIMIT,
    f"{STORED}/checkpoint.py read_latest: 2 → (1)": LINE,
    f"{STORED}/checkpoint.py read_latest: 2 → 3": LINE,
    f"{STORED}/open_state.py _actions: 1 → (0)": LENGTHS,
    f"{STORED}/pace.py Pace.__init__: 0.0 → (-1.0)": FIRST,
    f"{STORED}/pace.py Pace.__init__: 0.0 → 1.0": FIRST,
    f"{STORED}/pace.py Pace.is_due: self._took > CHEAP → (self._took >= CHEAP)": "how often files are written",
    f"{STORED}/pace.py Pace.is_due: 0.0 → (-1.0)": "no time is negative",
    f"{STORED}/state.py from_plain: 0 → (-1) (2)": "of a list with one item",
    f"{STORED}/state.py from_plain: 0 → (-1) (3)": "of a list with one item",
    f"{STORED}/state.py from_plain: 0 → (-1) (5)": "of a list with one item",
    **{
        f"{RESIDUAL} {place}: {line} → {line.replace(old, new, 1)}": why
        for place, line, old, new, why in (
            ("curvature_of", "for (int64_t j = 0; j < triangle(r); j++)", "<", "<=", SCRATCH),
            ("curvature_of", "for (int64_t j = 0, at = 0; j < r; j++) {", "<", "<=", SCRATCH),
            (
                "curvature_of",
                "for (int64_t at = 0; chances->curvature && at < triangle(r); at++)",
                "<",
                "<=",
                SCRATCH,
            ),
            (
                "bent_in",
                "for (int64_t t = chances->row_ptr[row]; chances->bend && t < chances->row_ptr[row + 1]; t++)",
                "t <",
                "t <=",
                "a pair that is taken for bent gets the bound of other rows, which holds for it, too",
            ),
            (
                "length",
                "INLINE double length(double square, double sizes) "
                "{ return square >= SAFE_SQUARES ? sqrt(square) : sizes; }",
                ">=",
                ">",
                "the sum of sizes is no less than the length",
            ),
            ("pair_curve", "double curve = !(twice <= 0.0) ? 0.5 * twice : 0.0;", "<=", "<", "half of 0 is 0"),
            ("is_faint", "for (int64_t j = 0; j < r; j++)", "<", "<=", "more room than is needed"),
            ("residual_in", "if (sign * a + norm + curve + rounding <= least)", "<=", "<", SHORTCUT),
            ("residual_in", "if (curve != 0.0 && sign * a + norm + rounding + curve > 0.0) {", ">", ">=", SHORTCUT),
            (
                "residual_in",
                SEMIDEFINITE,
                "room > 0.0",
                "room >= 0.0",
                "without room a matrix that is semidefinite is a proof, too",
            ),
            ("residual_in", SEMIDEFINITE, "r > 2", "r >= 2", "a proof with two coordinates, too"),
            (
                "residuals",
                "if (margin >= 0.0 || count < threads)",
                "count <",
                "count <=",
                "one thread in place of as many as there are states finds the same",
            ),
            (
                "visit_forward",
                "if (mass[order[at]] > 0.0 && !stopped[order[at]])",
                "> 0.0",
                ">= 0.0",
                "visits of no mass",
            ),
            ("visit_steps", "if (m > 0.0 && !stopped[s])", ">", ">=", "visits of no mass"),
            ("visit_steps", TURNS, "steps - 1 - k", "steps + 1 - k", "the same modulo 2"),
            ("visit_steps", TURNS, "steps - 1 - k", "steps - 1 + k", "the same modulo 2"),
            ("visit_steps", TURNS, "(steps - k)", "(steps + k)", "the same modulo 2"),
        )
    },
    f"{SOLVED} Witness.of: mass > TOLERANCE → (mass >= TOLERANCE)": "any mass that is moved is charged",
    f"{SOLVED} _shape: 0 → (-1)": SHORTCUT,
    f"{SOLVED} _shape: 1 → 2 (4)": SHORTCUT,
    f"{SOLVED} _shape: values > 0.0 → (values >= 0.0)": "zeros are left out before",
    f"{SOLVED} _shape: most > least → (most >= least)": SHORTCUT,
    f"{SOLVED} _Claim.values: self.given.min() >= least → (self.given.min() > least)": SHORTCUT,
    f"{SOLVED} _Claim.issues: found and self.is_region → ((found) or (self.is_region))": "a second try is a proof, too",
    f"{SOLVED} _Claim.issues: found and self.is_region → (not (found and self.is_region))": "proves no more",
    f"{SOLVED} _horizon: 0 → (-1) (2)": WORDS,
    f"{SOLVED} _Claim._endless: problem.rank is not None → (problem.rank is None)": (
        "only a shortcut: without a rank, states run forward by their number"
    ),
    f"{SOLVED} _Claim._endless: self.policy is None → (not (self.policy is None))": CONSTANT,
    f"{SOLVED} _Claim._endless: self.policy is None → (self.policy is not None)": CONSTANT,
    f"{SOLVED} _Claim._endless: problem.criterion.signed → (not (problem.criterion.signed))": WORDS,
    f"{SOLVED} _Claim._with_witness: 1.0 → 2.0": "all numbers below 0 mean that nature is free",
    f"{SOLVED} _Claim._proof: self.upward → (not (self.upward))": WORDS,
    f"{SOLVED} _Claim._proof: self.values[bad] - image[bad] → (self.values[bad] + image[bad])": WORDS,
}


def reason(mutant: Mutant) -> str | None:
    """Why a mutant may survive; None if it may not."""
    if mutant.name in NAMES:
        return NAMES[mutant.name]
    return None if mutant.is_dropped_check else FUNCTIONS.get(f"{mutant.path} {mutant.place}")


def stale(mutants: list[Mutant]) -> list[str]:
    """Entries that belong to no mutant of these: the code has changed since."""
    known = {m.name for m in mutants} | {f"{m.path} {m.place}" for m in mutants}
    paths = {m.path for m in mutants}
    return sorted(name for name in (*FUNCTIONS, *NAMES) if name.split()[0] in paths and name not in known)
