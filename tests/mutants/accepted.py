"""Mutants that may survive: none of them can make a bound false. The others must be noticed by a test."""

from __future__ import annotations

from tests.mutants.changes import Mutant

SEARCH = "any numbers are valid here: they only decide how tight a bound is"
WORDS = "only the words of a message"
CHECKER = "rpl_agent/guarantee/checker.py"
SOLVED = "rpl_agent/core/solver/check.py"
SHORTCUT = "only a shortcut: what follows comes to the same"
#: Functions all of whose mutants may survive, except those that drop a check.
FUNCTIONS: dict[str, str] = {
    f"{CHECKER} Coordinates.fit": SEARCH,
    f"{CHECKER} Coordinates.next_fit": SEARCH,
    f"{CHECKER} Coordinates.spread": SEARCH,
    f"{CHECKER} Coordinates.particles": SEARCH,
    f"{CHECKER} Coordinates.information": SEARCH,
    f"{CHECKER} stake": SEARCH,
    f"{CHECKER} Bets._aim": SEARCH,
    f"{CHECKER} Bets._slope": SEARCH,
    f"{CHECKER} Bets._plan": SEARCH,
    f"{CHECKER} Data.fits": SEARCH,
    f"{CHECKER} shortened": WORDS,
    f"{SOLVED} _name": WORDS,
    f"{SOLVED} _Claim.side": WORDS,
}
#: Single mutants, by name.
NAMES: dict[str, str] = {
    f"{SOLVED} Witness.of: mass > TOLERANCE → (mass >= TOLERANCE)": "any mass that is moved is charged",
    f"{SOLVED} _shape: 0 → (-1)": SHORTCUT,
    f"{SOLVED} _shape: 1 → 2 (4)": SHORTCUT,
    f"{SOLVED} _shape: values > 0.0 → (values >= 0.0)": "zeros are left out before",
    f"{SOLVED} _shape: most > least → (most >= least)": SHORTCUT,
    f"{SOLVED} is_converged: 0.0 → (-1.0)": "the width of the bracket is infinite then",
    f"{SOLVED} is_converged: 0.0 → 1.0": "the width of the bracket is infinite then",
    f"{SOLVED} _Claim.values: self.given.min() >= least → (self.given.min() > least)": SHORTCUT,
    f"{SOLVED} _Claim.issues: found and self.is_region → ((found) or (self.is_region))": "a second try is a proof, too",
    f"{SOLVED} _Claim.issues: found and self.is_region → (not (found and self.is_region))": "proves no more",
    f"{SOLVED} _horizon: 0 → (-1) (2)": WORDS,
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
