"""Models whose rows are unknown distributions of their own: bets on rows, on plays and on visits, beside intervals."""
