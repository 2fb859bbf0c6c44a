"""The builder reads an expression once, however often it is written."""

from __future__ import annotations

import pytest

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import build, simplex
from rpl_agent.core.model.building import builder


def walk(state: int) -> dict:
    if state == 50:
        return {"rest": {50: 1}}
    return {"go": {state + 1: "1 - 2*p", state: "p", -state: "p"}} if state > 0 else {"go": {abs(state) + 1: 1}}


def test_a_text_is_parsed_once(monkeypatch):
    parsed = []
    original = builder.as_polynomial
    monkeypatch.setattr(builder, "as_polynomial", lambda text: parsed.append(text) or original(text))
    model = build(0, walk, domain={"p": (0.1, 0.2)})
    assert model.num_states == 100 and sorted(map(str, parsed)) == ["1", "1 - 2*p", "p"]


def test_every_place_of_a_bad_text_is_named():
    def bad(state: int) -> dict:
        return {"go": {state + 1: "1 - r", state: "r"}} if state < 2 else {"rest": {2: 1}}

    with pytest.raises(ModelError) as error:
        build(0, bad, domain={"p": (0.1, 0.2)})
    assert "state 0" in str(error.value) and "state 1" in str(error.value)


def test_the_names_of_a_draw_are_listed_where_another_is_used():
    def drawn(state):
        return {"stay": {state: 1}} if state else {"draw": {k + 1: f"d{k}" for k in range(4)}}

    with pytest.raises(ModelError, match=r"expression d3 uses .* the domain has d0, d1, d2"):
        build(0, drawn, domain={"d": simplex(4)})
