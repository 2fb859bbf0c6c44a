"""`python -m rpl_agent.checker PROOF.json[.gz]`: the stand-alone checker, `rpl_agent/guarantee/checker.py`, or, for a
certificate without a model, `open_checker.py` beside it.
"""

from rpl_agent.guarantee.open_checker import command

if __name__ == "__main__":
    command()
