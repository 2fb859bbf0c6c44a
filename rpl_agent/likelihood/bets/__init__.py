"""Payoffs told before the data they are settled with: on the value of a model (`slabs`), on a mean (`mean`)."""
