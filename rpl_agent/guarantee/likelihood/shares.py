"""How the likelihood divides the main share of δ: in the proportions of the checker's table of parts of δ."""

from __future__ import annotations

from rpl_agent.core.evidence.ledger import MainShares
from rpl_agent.guarantee.checker import SHARES


def _main_shares(method: str) -> MainShares:
    """The parts of the main share, a hair smaller, so that rounding makes none of them larger than the checker's."""
    parts = SHARES[method]
    return MainShares(*(part / sum(parts) * (1.0 - 2.0**-40) for part in parts))


#: With bets, the level set bounds what they leave open, and early data; intervals matter for few data only. A table
#: without order has one window with an uninformed prior, so intervals are as good.
WITH_BETS, WITHOUT_BETS = _main_shares("likelihood with bets"), _main_shares("likelihood")
OF_A_TABLE = _main_shares("likelihood of a table")
#: Where bounds of few data come from rows, one by one, intervals matter more.
BLOCKS_WITH_BETS = _main_shares("likelihood with bets, of blocks")
