"""`python -m tests.mutants`: small changes of the code that certificates rest on, each of which a test must notice.

- `changes`: what is changed, one piece at a time: a comparison or a condition turned, a constant moved, min for max, a
  term or a check dropped; and the tests nearest to each file
- `accepted`: the survivors that cannot make a bound false, by name, with a reason
- `campaign`: runs the tests on mutants
"""
