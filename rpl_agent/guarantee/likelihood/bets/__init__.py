"""Bets with payoffs fixed before the data that settle them: on the value of a model (`slabs`), on a mean (`mean`)."""
