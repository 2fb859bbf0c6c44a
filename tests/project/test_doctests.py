"""Every public name has an example with output in its docstring, and it is true."""

from __future__ import annotations

import doctest
import inspect

import pytest

import rpl_agent
from rpl_agent.agent import loop

pytestmark = pytest.mark.short_runs

NAMES = {name: getattr(rpl_agent, name) for name in rpl_agent.__all__}


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_public_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loop, "PROVED", 300)  # no example shows the proof of a run
    text = inspect.cleandoc(NAMES[name].__doc__ or "")
    examples = doctest.DocTestParser().get_doctest(text, dict(NAMES), name, None, 0)
    assert any(example.want for example in examples.examples), f"{name} has no example with output"
    printed: list[str] = []
    failed, _ = doctest.DocTestRunner(verbose=False).run(examples, out=printed.append)
    assert not failed, "".join(printed)


def test_each_public_name_is_listed_once():
    source = inspect.getsource(rpl_agent)
    for name in NAMES:
        assert source.count(f" as {name}\n") == 1
