"""The short loop over lark's tables makes the trees that lark makes, and refuses what lark refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lark.exceptions import UnexpectedInput

from rpl_agent.formats.prism.language.errors import PrismError
from rpl_agent.formats.prism.language.parser import _lark, _table_parser, parse_model
from rpl_agent.formats.prism.language.table_parser import NotInLanguage

ROOT = Path(__file__).parents[2]
MODELS = sorted(
    [*(ROOT / "examples" / "models").glob("*.prism"), *(ROOT / "benchmarks" / "smc_models").glob("*.prism")]
)
PROPERTIES = [
    'Pmax=? [ F<=6 x=4 & !y ];',
    '"a": R{"cost"}min=? [ C<=2*k ]; const int k = 2; label "l" = x>1 => y | z;',
    'filter(max, P>=0.5 [ (a U<=3 b) ], x=1)',
    "Pmax=? [ G (x=1 ? y : (z<2)) ]",
]  # fmt: skip


def by_lark(text: str, start: str) -> str | None:
    try:
        return repr(_lark().parse(text, start=start))
    except (UnexpectedInput, PrismError):
        return None


def by_table(text: str, start: str) -> str | None:
    try:
        return repr(_table_parser().parse(text, start))
    except (NotInLanguage, PrismError):
        return None


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_trees_and_places_are_those_of_lark(path):
    text = path.read_text()
    found = by_table(text, "model")
    assert found is not None and found == by_lark(text, "model")


@pytest.mark.parametrize("text", PROPERTIES)
def test_properties(text):
    found = by_table(text, "property_file")
    assert found is not None and found == by_lark(text, "property_file")


def test_places_after_line_breaks_of_every_kind():
    text = "mdp // comment\r\n\n\tmodule m x\n : [0..1];\n [] x=0 -> (x\n' = 1);\n endmodule"
    found = by_table(text, "model")
    assert found is not None and found == by_lark(text, "model")


def test_mutated_files_are_refused_alike():
    rng = np.random.default_rng(3)
    text = (ROOT / "examples" / "models" / "betting.prism").read_text()
    refused = 0
    for _ in range(150):
        at, length = int(rng.integers(len(text))), int(rng.integers(0, 4))
        inserted = str(rng.choice(["", "]", " + ", "ctmc", "§", "=", "(", "1.", "'", '"'])) if length < 3 else ""
        mutated = text[:at] + inserted + text[at + length :]
        found = by_table(mutated, "model")
        assert found == by_lark(mutated, "model")
        refused += found is None
    assert 20 < refused < 150


def test_errors_are_those_of_lark():
    with pytest.raises(PrismError, match=r"unexpected ']'; expected one of") as caught:
        parse_model("mdp\nmodule m x : [0..]; endmodule")
    assert (caught.value.line, caught.value.column) == (2, 18)
