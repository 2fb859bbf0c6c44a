"""Mutants that may survive: none of them can make a bound false. The others must be noticed by a test."""

from __future__ import annotations

from tests.mutants.changes import Mutant

SEARCH = "any numbers are valid here: they only decide how tight a bound is"
WORDS = "only the words of a message"
CHECKER = "rpl_agent/guarantee/checker.py"
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
}
#: Single mutants, by name.
NAMES: dict[str, str] = {}


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
