"""What the language allows beyond plain models: initial states, intervals, wide states, limits, odd arithmetic."""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from rpl_agent.cli import main
from rpl_agent.core.errors import ModelError, RPLWarning
from rpl_agent.core.model import Kind, Nature, Objective, Sense
from rpl_agent.core.model.objectives.objective import Unreached
from rpl_agent.core.schema import jsonable, read
from rpl_agent.core.solver import solve, solve_at
from rpl_agent.formats import prism
from rpl_agent.formats.prism.answers import answer
from rpl_agent.formats.prism.explore import explorer
from rpl_agent.formats.prism.language.grammar import PrismError

WALK = """mdp
module m
  x : [0..4];
  [go] x<4 -> 0.5:(x'=x+1) + 0.5:(x'=max(x-1,0));
  [stay] x<4 -> true;
  [done] x=4 -> true;
endmodule
rewards "steps" x<4 : 1; endrewards
label "top" = x=4;
"""


def value(text: str, property: str, **keywords) -> tuple[float, float]:
    found = prism.answer(prism.loads(text), property, **keywords)[0]
    assert found.problems == []
    return found.lower, found.upper


# -- initial states ---------------------------------------------------------------------------------------------------
SEVERAL = """mdp
module m
  x : [0..9]; b : bool;
  [a] x>0 -> 0.5:(x'=x-1) + 0.5:(x'=0);
  [b] x=0 -> true;
endmodule
init x>=2 & x<=4 & !b | x=9 & b endinit
label "low" = x=1;
"""


def test_several_initial_states_are_all_explored():
    model = prism.loads(SEVERAL)
    at = np.flatnonzero(model.pmdp.labels["init"])
    assert [(int(model.pmdp.variables["x"][s]), bool(model.pmdp.variables["b"][s])) for s in at] == [
        (2, False), (3, False), (4, False), (9, True)
    ]  # fmt: skip
    assert model.pmdp.labels["init"].sum() == 4


def test_filters_of_formulas_and_implications():
    """One step up or down; of the states above 1 the third reaches 4 by a coin, so surely none does."""
    model = prism.loads("""
        dtmc
        module m
          x : [0..4] init 1;
          [] x=1 -> 0.5 : (x'=2) + 0.5 : (x'=3);
          [] x=3 -> 0.5 : (x'=4) + 0.5 : (x'=2);
          [] x=2 | x=4 -> true;
        endmodule
        label "middle" = x=3;
    """)
    for text, verdict in (
        ("filter(forall, x<=4)", "yes"), ("filter(forall, x<4)", "no"), ("filter(exists, x=4)", "yes"),
        ("filter(exists, x=0)", "no"), ("filter(forall, x=1 => x<2)", "yes"), ("filter(&, x>2, x>1)", "no"),
        ("filter(forall, x=3 => P>0.4 [ F x=4 ])", "yes"), ("filter(forall, x>=2 => P>0.4 [ F x=4 ])", "no"),
        ('filter(forall, "middle" => P<0.6 [ F x=4 ], x>1)', "yes"),
        ("filter(forall, x=1|x=3 => P<0.4 [ F x=4 ])", "no"),
    ):  # fmt: skip
        assert prism.answer(model, text)[0].verdict == verdict, text
    assert prism.answer(model, "filter(count, x>=2)")[0].lower == 3.0
    for text, said in (("filter(exists, x=3 => P>0.4 [ F x=4 ])", "forall is"), ("filter(max, x=3)", "yes or no")):
        with pytest.raises(prism.PrismError, match=said):
            prism.answer(model, text)


def test_a_property_of_several_initial_states_is_a_range_or_filtered():
    # from x the state 1 is reached with probability 2^(1-x)
    model = prism.loads(SEVERAL)
    least, most = 2.0**-8, 2.0**-1
    for text, low, high in [
        ('Pmax=? [ F "low" ]', least, most),
        ('filter(min, Pmax=? [ F "low" ], "init")', least, least),
        ('filter(max, Pmax=? [ F "low" ], "init")', most, most),
        ('filter(max, Pmax=? [ F "low" ], x=4)', 0.125, 0.125),
        ('filter(avg, Pmax=? [ F "low" ], x>=2 & x<=3 & !b)', 0.375, 0.375),
        ('filter(sum, Pmax=? [ F "low" ], x>=2 & x<=3 & !b)', 0.75, 0.75),
        ('filter(first, Pmax=? [ F "low" ], "init")', 0.5, 0.5),
        ('Pmax=? [ F "low" {x=3 & !b}{max} ]', 0.25, 0.25),
    ]:
        found = prism.answer(model, text)[0]
        assert (found.lower, found.upper) == (pytest.approx(low), pytest.approx(high)), text
    for text, verdict in [
        ('P>=0.001 [ F "low" ]', "yes"),
        ('P>=0.1 [ F "low" ]', "no"),
        ('filter(exists, P>=0.1 [ F "low" ], "init")', "yes"),
        ('filter(forall, P<0.6 [ F "low" ], "init")', "yes"),
    ]:
        assert prism.answer(model, text)[0].verdict == verdict, text
    count = prism.answer(model, 'filter(count, P>=0.2 [ F "low" ], "init")')[0]
    assert (count.lower, count.upper) == (2, 2)
    with pytest.warns(RPLWarning, match="4 initial states"):
        model.objective('Pmax=? [ F "low" ]')


def test_a_comparison_with_a_sense_is_about_the_best_policy():
    # staying never gets there: some policy reaches the top, not every one
    model = prism.loads(WALK)
    for text, verdict in [
        ('P>=0.5 [ F "top" ]', "no"), ('Pmax>=0.5 [ F "top" ]', "yes"), ('Pmin>=0.5 [ F "top" ]', "no"),
        ('Pmax<=0.5 [ F "top" ]', "no"), ('Pmin<=0.5 [ F "top" ]', "yes"), ('Pmax>=1 [ F "top" ]', "yes"),
        ('R{"steps"}min<=19 [ F "top" ]', "no"), ('R{"steps"}min<=21 [ F "top" ]', "yes"),
    ]:  # fmt: skip
        assert prism.answer(model, text)[0].verdict == verdict, text
    wide = prism.loads(WALK.replace("0.5:(x'=x+1) + 0.5", "[0,0.5]:(x'=x+1) + [0.5,1]"))
    for text, verdict in [
        ('Pmax>=0.5 [ F "top" ]', "no"),  # nature may hold the play below
        ('Pmaxmax>=0.5 [ F "top" ]', "yes"),
        ('Pmin<=0.5 [ F "top" ]', "yes"),
    ]:
        assert prism.answer(wide, text)[0].verdict == verdict, text


def test_step_bounds_may_be_sums_and_products():
    model = prism.loads(WALK.replace("mdp", "mdp\nconst int N = 2;"))
    wanted = prism.answer(model, 'Pmax=? [ F<=9 "top" ]')[0].upper
    for bound in ("<=N+7", "<=N*N+5", "<10", "<=(N+7)", "<=1+2*(N+2)"):
        assert prism.answer(model, f'Pmax=? [ F{bound} "top" ]')[0].upper == wanted, bound


def test_initial_predicates_over_many_variables_are_joined_not_enumerated():
    names = [f"v{k}" for k in range(30)]
    text = (
        "dtmc module m\n" + "\n".join(f"{n} : [0..9];" for n in names) + "\n[] true -> true; endmodule\n"
        "init " + " & ".join(f"{n}={k % 10}" for k, n in enumerate(names[:-1])) + " & v29 > 6 endinit"
    )
    assert prism.loads(text).pmdp.labels["init"].sum() == 3
    loose = text.replace("v0=0 & v1=1 & v2=2 & v3=3 & v4=4 & v5=5 & v6=6 & v7=7 & ", "")
    with pytest.raises(prism.PrismError, match="combinations to try"):
        prism.loads(loose)


# -- intervals --------------------------------------------------------------------------------------------------------
INTERVAL = """mdp
const double e;
module m
  x : [0..2];
  [safe] x=0 -> [0.5,0.6]:(x'=1) + [0.4,0.5]:(x'=2);
  [risky] x=0 -> [0.2,e]:(x'=1) + [0,0.8]:(x'=2);
  [] x>0 -> true;
endmodule
rewards "r" x=0 : 1; endrewards
"""


def test_interval_models_have_robust_and_optimistic_values():
    model = prism.loads(INTERVAL)
    assert model.bounds is not None
    for text, robust, optimistic in [
        ("Pmax=? [ F x=1 ]", 0.5, 0.9), ("Pmin=? [ F x=1 ]", 0.6, 0.2), ("Pmax=? [ G x!=2 ]", 0.5, 0.9),
    ]:  # fmt: skip
        low, high = prism.answer(model, text, np.array([0.9]))
        assert (low.lower, low.upper) == (pytest.approx(robust), pytest.approx(robust)), text
        assert (high.lower, high.upper) == (pytest.approx(optimistic), pytest.approx(optimistic)), text
    for text, wanted in [
        ("Pmaxmin=? [ F x=1 ]", 0.5), ("Pmaxmax=? [ F x=1 ]", 0.9), ("Pminmin=? [ F x=1 ]", 0.2),
        ("Pminmax=? [ F x=1 ]", 0.6), ('R{"r"}maxmin=? [ C ]', 1.0),
    ]:  # fmt: skip
        (found,) = prism.answer(model, text, np.array([0.9]))
        assert found.lower == pytest.approx(wanted, abs=1e-9) and found.upper == pytest.approx(wanted, abs=1e-9), text
    assert prism.answer(model, "P>=0.2 [ F x=1 ]", np.array([0.9]))[0].lower <= 0.2
    assert prism.answer(model, "P>=0.19 [ F x=1 ]", np.array([0.9]))[0].verdict == "yes"


def test_parameters_in_bounds_are_taken_at_their_widest_where_they_have_no_value():
    model = prism.loads(INTERVAL, parameters={"e": (0.3, 0.7)})
    robust, optimistic = prism.answer(model, "Pmax=? [ F x=1 ]")
    assert robust.lower == pytest.approx(0.5) and optimistic.upper == pytest.approx(0.7)
    with pytest.raises(prism.PrismError, match="nothing is learned"):
        model.objective("Pmax=? [ F x=1 ]")


def test_synchronised_intervals_multiply_and_equal_successors_add():
    text = """mdp
    module a x:[0..1]; [s] x=0 -> [0.4,0.6]:(x'=1) + [0.4,0.6]:true; [s] x=1 -> true; endmodule
    module b y:[0..1]; [s] y=0 -> [0.1,0.2]:(y'=1) + [0.3,0.4]:(y'=1) + [0.4,0.6]:true; [s] y=1 -> true; endmodule
    """
    model = prism.loads(text)
    lower, upper = model.bounds.at(None)
    row = slice(0, int(model.pmdp.row_ptr[1]))
    ids = model.pmdp.expression[row]
    assert lower[ids].tolist() == pytest.approx([0.16, 0.16, 0.16, 0.16])
    assert upper[ids].tolist() == pytest.approx([0.36, 0.36, 0.36, 0.36])


def test_an_interval_model_is_an_uncertain_mdp():
    model = prism.loads(INTERVAL)
    model.pmdp = replace(model.pmdp, labels={**model.pmdp.labels, "x=1": model.pmdp.variables["x"] == 1})
    given = model.uncertain(np.array([0.9]))
    found = solve(given.relaxation(), Objective.reach("x=1", sense=Sense.MAX), Nature.COOPERATIVE)
    assert found.lower == pytest.approx(0.9)
    with pytest.raises(prism.PrismError, match="no intervals"):
        prism.loads(WALK).uncertain()


def test_impossible_intervals_are_refused():
    with pytest.raises(ModelError, match="sum to more than 1"):
        prism.loads(INTERVAL.replace("[0.5,0.6]", "[0.7,0.8]"))


def test_storm_gives_the_same_values_to_an_interval_model(tmp_path):
    stormpy = pytest.importorskip("stormpy", reason="the peer stormpy is not installed (extra 'peers')")
    text = INTERVAL.replace("const double e;", "const double e = 0.9;").replace("[0,0.8]", "[0.1,0.8]")
    (tmp_path / "i.prism").write_text(text)
    program = stormpy.parse_prism_program(str(tmp_path / "i.prism"))
    model = prism.loads(text)
    for sense in ("max", "min"):
        formula = stormpy.parse_properties(f"P{sense}=? [ F x=1 ]", program)
        try:
            storm = stormpy.build_model[stormpy.Interval](program, formula)
        except (RuntimeError, TypeError, KeyError):
            pytest.skip("this Storm builds no interval models from PRISM files")
        ours = prism.answer(model, f"P{sense}=? [ F x=1 ]")
        modes = (stormpy.UncertaintyResolutionMode.ROBUST, stormpy.UncertaintyResolutionMode.COOPERATIVE)
        for found, mode in zip(ours, modes, strict=True):
            result = stormpy.model_checking(storm, formula[0], uncertainty_resolution_mode=mode)
            assert result.get_value(storm.initial_states[0]) == pytest.approx(found.lower, abs=1e-6)


# -- targets, bounds, rewards -----------------------------------------------------------------------------------------
def test_a_target_that_holds_nowhere_has_a_value_and_a_warning():
    with pytest.warns(RPLWarning, match="holds in no state"):
        assert value(WALK, "Pmax=? [ F x=3 & x=4 ]")[1] < 1e-200
    with pytest.warns(RPLWarning, match="holds in no state"):
        assert value(WALK, "Rmin=? [ F x=3 & x=4 ]") == (np.inf, np.inf)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Pmax=? [ F<=0 x=0 ]", 1.0), ("Pmax=? [ F<1 x=1 ]", 0.0), ("Pmax=? [ F<=1 x=1 ]", 0.5),
        ("Rmax=? [ C<=0 ]", 0.0), ("Rmax=? [ I=0 ]", 1.0), ("Pmax=? [ x=0 U<=0 x=1 ]", 0.0),
    ],
)  # fmt: skip
def test_step_bounds_may_be_zero(text, wanted):
    assert value(WALK, text) == (pytest.approx(wanted, abs=1e-9), pytest.approx(wanted, abs=1e-9))


def test_a_reward_until_a_target_that_may_be_missed_is_infinite_as_in_prism():
    model = prism.loads(WALK)
    model.pmdp, objective = model.objective('Rmax=? [ F "top" ]')
    assert objective == Objective(Kind.REWARD, Sense.MAX, "top", reward_name="steps", unreached=Unreached.INFINITE)
    free = WALK.replace("[stay] x<4 -> true;", "[stay] x=0 -> (x'=0);").replace("x<4 : 1", "[go] x<4 : 1")
    assert value(free, 'Rmax=? [ F "top" ]') == (np.inf, np.inf)  # staying forever pays nothing and misses the top
    assert value(free, 'Rmax=? [ Fc "top" ]') == (pytest.approx(20.0), pytest.approx(20.0))
    sure = WALK.replace("  [stay] x<4 -> true;\n", "")
    assert value(sure, 'Rmax=? [ F "top" ]') == (pytest.approx(20.0), pytest.approx(20.0))
    # where the target cannot be missed, the two are one objective
    assert prism.loads(sure).objective('Rmax=? [ F "top" ]')[1] == Objective.reward("steps", target="top")
    assert read(jsonable(objective), Objective, "an objective") == objective
    assert Objective.total("steps", target="top").describe() == 'R{"steps"}max=? [ Fc "top" ]'
    assert Objective.total("steps", horizon=5).describe() == 'R{"steps"}max=? [ C<=5 ]'


def test_transitions_pay_nothing_at_an_instant():
    """As in PRISM; who builds a model with rewards of actions is told, and not answered with 0."""
    paid = WALK.replace("x<4 : 1", "[go] x<4 : 1")
    with pytest.warns(RPLWarning, match='no state has a reward "steps"'):
        assert value(paid, "Rmax=? [ I=1 ]") == (0.0, 0.0)
    assert value(WALK, "Rmax=? [ I=1 ]")[0] == pytest.approx(1.0)
    pmdp = prism.loads(paid).pmdp
    with pytest.raises(ModelError, match="'steps' is paid for actions, and no state has one"):
        solve_at(pmdp, np.zeros(0), Objective.instant("steps", 1))


def test_both_players_of_intervals_may_miss_the_target():
    """Where both maximise, nature stays at a row that it could leave, and the cost is infinite."""
    text = """mdp module m x : [0..3] init 0;
      [near] x=0 -> (x'=2);
      [far] x=0 -> [0.1,0.9]:(x'=1) + [0.1,0.9]:(x'=2);
      [wait] x=1 -> [0.2,1]:(x'=1) + [0,0.8]:(x'=2);
      [back] x=2 -> [0.5,1]:(x'=3) + [0,0.5]:(x'=0);
      [stay] x=3 -> true;
    endmodule rewards "steps" true : 1; endrewards"""
    for players in ("maxmax", "minmax"):
        (found,) = prism.answer(prism.loads(text), f"R{players}=? [ F x=3 ]")
        infinite = players == "maxmax"  # who minimises goes near and pays 2 steps until the end or the start again
        assert (found.lower == found.upper == np.inf) if infinite else found.lower <= 4.0 <= found.upper
        assert not found.problems


def test_almost_sure_properties_are_decided_by_the_graph():
    assert prism.answer(prism.loads(WALK), 'P>=1 [ F "top" ]')[0].verdict == "no"
    sure = prism.loads(WALK.replace("  [stay] x<4 -> true;\n", ""))
    assert prism.answer(sure, 'P>=1 [ F "top" ]')[0].verdict == "yes"
    assert prism.answer(sure, "P<=0 [ G x<4 ]")[0].verdict == "yes"
    found = prism.answer(sure, 'P>=0.5 [ F<=4 "top" ]')[0]
    assert found.verdict == "no" and found.upper < 0.5
    third = "dtmc module m x:[0..2]; [] x=0 -> 1/3:(x'=1)+2/3:(x'=2); [] x>0 -> true; endmodule"
    assert prism.answer(prism.loads(third), "P>=1/3 [ F x=1 ]")[0].verdict == "not decided at this precision"


def test_rewards_with_parameters_have_values_where_the_parameters_have():
    text = WALK.replace("mdp", "mdp\nconst double c;", 1).replace("x<4 : 1", "x<4 : 2*c + 1")
    model = prism.loads(text)
    (found,) = prism.answer(model, 'Rmin=? [ F "top" ]', np.array([0.5]))
    assert found.lower == pytest.approx(40.0) and found.upper == pytest.approx(40.0)
    assert "steps" not in model.pmdp.rewards
    interval = prism.loads(text.replace("0.5:(x'=x+1)", "[0.4,0.6]:(x'=x+1)"))
    with pytest.raises(prism.PrismError, match='"steps" contains a parameter'):
        prism.answer(interval, 'Rmin=? [ F "top" ]')
    robust, _ = prism.answer(interval, 'Rmin=? [ F "top" ]', np.array([0.5]))
    assert robust.upper > 40.0
    assert prism.answer(model, 'Pmax=? [ F "top" ]', np.array([0.5]))[0].upper == pytest.approx(1.0)


# -- words and arithmetic ---------------------------------------------------------------------------------------------
def test_ordinary_comments_may_contain_the_word_range():
    text = "mdp\nconst double p; // range p 0.2 0.4\n// range of probabilistic choice\n// constraint on all of it\n"
    text += "module m x:[0..1]; [] x=0 -> p:(x'=1) + 1-p:true; [] x=1 -> true; endmodule"
    assert prism.loads(text).pmdp.domain.upper.tolist() == [0.4]


def test_power_is_an_operator():
    text = "dtmc module m x:[0..9]; [] x<9 -> 2.0^-1:(x'=x^2^1-x^2+x+1) + 1-0.5^1:true; [] x=9 -> true; endmodule"
    assert prism.loads(text).pmdp.num_states == 10


@pytest.mark.parametrize("condition", ["pow(x,0.5) < 7", "x^(1/2) >= 0", "floor(pow(x+1,-1/3)) = 0"])
def test_roots_are_refused_by_name(condition):
    with pytest.raises(prism.PrismError, match=r"pow\(\d, -?1/\d\): roots are not supported"):
        prism.loads(f"dtmc module m x:[0..1]; [] {condition} -> true; endmodule")
    assert prism.loads("dtmc module m x:[0..1]; [] pow(x+1,4/2) = 1 -> true; endmodule").pmdp.num_states == 1


def test_division_by_a_parameter_is_read_where_it_comes_out_even():
    text = """mdp const double p; const double q;
    formula f = (p*p*q - q) / ((1+p)*4);
    module m x:[0..1]; [] x=0 -> -f:(x'=1) + 1+f:true; [] x=1 -> true; endmodule"""
    pmdp = prism.loads(text).pmdp
    values = {pmdp.table.polynomial(f).at({"p": "1/2", "q": "1/2"}) for f in range(pmdp.num_expressions)}
    assert values == {Fraction(1, 16), Fraction(15, 16), Fraction(1)}
    with pytest.raises(prism.PrismError, match="divides by a parameter"):
        prism.loads(text.replace("(p*p*q - q)", "(p*p*q - q - 1)"))


def test_expressions_over_more_variables_than_fit_in_a_key():
    """Integers too large for 64 bits are evaluated once per combination; of 70 variables, keys forgot the first."""
    variables = "".join(f"b{k} : bool; " for k in range(70))
    total = " + ".join(f"(b{k} ? 1 : 0) * {2**61}" for k in range(70))
    text = f"""dtmc module m {variables} [] !b0 -> 0.5:(b0'=true) + 0.5:true; [] b0 -> true; endmodule
    label "hit" = {total} >= {2**61};"""
    assert prism.loads(text).pmdp.labels["hit"].tolist() == [False, True]


# -- models that explode ----------------------------------------------------------------------------------------------
def explodes(text: str, match: str, **keywords) -> None:
    began = time.process_time()
    with pytest.raises(prism.PrismError, match=match):
        prism.loads(text, **keywords)
    assert time.process_time() - began < 60


def test_models_that_do_not_fit_end_in_one_line(monkeypatch):
    monkeypatch.setattr(explorer, "default_limit", lambda: 200 << 20)
    bits = "".join(f"b{k} : bool;\n" for k in range(40))
    flips = "".join(f"[] true -> (b{k}'=!b{k});\n" for k in range(40))
    explodes(f"mdp module m\n{bits}{flips}endmodule", "does not fit in memory")
    wide = "".join(
        f"module m{i} x{i}:[0..1]; " + "".join(f"[s] true -> (x{i}'={k % 2}); " for k in range(8)) + "endmodule\n"
        for i in range(12)
    )
    explodes(f"mdp\n{wide}", "does not fit in memory")
    explodes("mdp module m x:[0..99999999]; [] x<99999999 -> (x'=x+1); [] true -> (x'=0); endmodule",
             "more than 50000 states", max_states=50_000)  # fmt: skip


def test_the_memory_limit_is_what_this_process_may_use(monkeypatch):
    resource = pytest.importorskip("resource")
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (now + (64 << 20), now + (64 << 20)))
    assert explorer.default_limit() <= 32 << 20
    explodes("mdp module m x:[0..99999999]; [] x<99999999 -> (x'=x+1); endmodule", "does not fit in memory")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (now - 1, now - 1))
    assert explorer.default_limit() == 0


def test_running_out_of_memory_is_one_line(monkeypatch, capsys, tmp_path):
    walk = tmp_path / "walk.prism"
    walk.write_text(WALK)

    def full(*_, **__):
        raise MemoryError("Unable to allocate 2.00 GiB")

    monkeypatch.setattr(prism.reader, "explore", full)
    assert main(["info", "--model", str(walk), "--json"]) == 2
    assert json.loads(capsys.readouterr().out) == {"error": "rpl info: out of memory: Unable to allocate 2.00 GiB"}


def test_a_large_product_of_variables_with_few_reachable_states_is_small():
    bits = "".join(f"b{k} : bool;\n" for k in range(20))
    commands = "".join(f"[] b{k % 20} & b{(k + 1) % 20} -> (b{k % 20}'=false);\n" for k in range(60))
    model = prism.loads(f"mdp module m\n{bits}[] !b0 -> (b0'=true);\n{commands}[] b0 -> true;\nendmodule")
    assert model.pmdp.num_states == 2


def test_progress_is_reported(monkeypatch):
    monkeypatch.setattr(explorer, "PAUSE", 1000)
    seen: list[tuple[int, int]] = []
    text = "mdp module m x:[0..99]; y:[0..99]; [] true -> (x'=mod(x+1,100)); [] true -> (y'=mod(y+1,100)); endmodule"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prism.loads(text, progress=lambda expanded, found: seen.append((expanded, found)))
    assert len(seen) >= 5 and all(a <= b for a, b in seen)


# -- the command line -------------------------------------------------------------------------------------------------
def solved(capsys, *line: str) -> dict:
    assert main(["solve", *line, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_rpl_solve_answers_properties_of_files(tmp_path, capsys):
    walk, interval = tmp_path / "walk.prism", tmp_path / "interval.prism"
    walk.write_text(WALK)
    interval.write_text(INTERVAL)
    found = solved(capsys, "--model", str(walk), "--property", "Pmin=? [ G x<4 ]")
    assert found["upper"] <= 1e-9 and "1 minus" in found["objective"] and found["checked"]
    assert solved(capsys, "--model", str(walk), "--property", "P>=1 [ F x=4 ]")["answer"] == "no"
    assert solved(capsys, "--model", str(walk), "--property", 'Rmax=? [ F "top" ]')["lower"] == "inf"
    found = solved(capsys, "--model", str(interval), "--property", "Pmax=? [ F x=1 ]", "--theta", "e=0.9")
    assert (found["robust_lower"], found["optimistic_upper"]) == (pytest.approx(0.5), pytest.approx(0.9))
    assert main(["info", "--model", str(interval), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["intervals"] == 5


def test_bad_files_end_the_command_in_one_error(tmp_path, capsys):
    walk = tmp_path / "walk.prism"
    walk.write_text(WALK)
    line = ["solve", "--model", str(walk), "--property", 'Pmax=? [ F "top" ]', "--max-states", "3", "--json"]
    assert main(line) == 2
    assert "more than 3 states" in json.loads(capsys.readouterr().out)["error"]
    assert main(["solve", "--model", str(walk), "--property", "multi(Pmax=? [ F x=1 ])", "--json"]) == 2
    assert "at least two properties" in json.loads(capsys.readouterr().out)["error"]


@pytest.mark.parametrize(
    ("text", "domain"), [("[0.86,0.94]", ""), ("[p-0.04,p+0.04]", "const double p; // range p 0.9 0.9\n")]
)
def test_intervals_that_merge_at_a_wall_are_cut_at_one(text, domain):
    """Two ways to the same successor: their upper bounds sum to 1.01, which says no more than 1."""
    model = prism.loads(
        f"mdp\n{domain}module m\n  x : [0..2];\n  [a] x=0 -> {text}:(x'=max(0,x-1)) + [0.03,0.07]:(x'=0)"
        " + [0.03,0.07]:(x'=1);\n  [b] x=1 -> (x'=2);\n  [e] x=2 -> true;\nendmodule\n"
    )
    theta = None if not domain else np.array([0.9])
    bounds = model.bounds.at(theta)
    assert max(bounds[1]) == 1.0
    [worst, best] = answer(model, "Pmax=? [F<=2 x=2]", theta)
    assert worst.lower == pytest.approx(0.03) and best.upper == pytest.approx(0.07)
    assert not worst.problems and not best.problems


def test_a_single_interval_beyond_one_is_refused():
    with pytest.raises(PrismError, match=r"bounds leave \[0, 1\]"):
        prism.loads("mdp\nmodule m\n  x : [0..1];\n  [a] x=0 -> [0.9,1.2]:(x'=1) + [0,0.1]:(x'=0);\nendmodule\n")
