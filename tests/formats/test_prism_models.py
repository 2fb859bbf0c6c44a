"""PRISM models: the benchmarks, the language's constructs, and the compiled explorer against the plain evaluator."""

from __future__ import annotations

import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import rpl_envs
from rpl_agent.core.errors import RPLWarning
from rpl_agent.core.model import Polynomial
from rpl_agent.formats import prism
from rpl_agent.formats.prism.explore import explorer, lower
from rpl_agent.formats.prism.explore.code import Bytecode, NotVectorisable
from tests.reference.coupled import exact_value
from tests.reference.prism import build_slowly

MODELS = Path(__file__).parents[2] / "examples" / "models"

BENCHMARKS = [
    ("aircraft", "Aircraft-20x10", {}),
    ("aircraft", "Aircraft-50x10", {"width": 50}),
    ("betting", "Betting-25", {}),
    ("betting", "Betting-50", {"n": 50}),
    ("engagement", "Engagement-50", {}),
    ("engagement", "Engagement-100", {"L": 100}),
    ("mars_rover", "MarsRover-10x10", {}),
    ("glider", "Glider-11x9", {}),
    ("glider", "Glider-51x47", {"w": 51, "h": 47, "gx": 45, "gy": 46}),
    ("glider", "Glider-71x67", {"w": 71, "h": 67, "gx": 51, "gy": 50, "radius": 10}),
    ("parallel_betting", "ParallelBetting-5", {"n": 5}),
    ("parallel_betting", "ParallelBetting-6", {}),
]


def assert_same(a, b) -> None:
    """Equal arrays, expressions, domain, labels and rewards; action names up to spaces."""
    for name in ("state_ptr", "action", "row_ptr", "successor", "expression"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    assert a.table.denominators == b.table.denominators
    assert a.table.data.tolist() == b.table.data.tolist()
    assert a.table.monomials.tolist() == b.table.monomials.tolist()
    assert [n.replace(" ", "_") for n in a.action_names] == [n.replace(" ", "_") for n in b.action_names]
    for name in ("lower", "upper", "A", "b"):
        np.testing.assert_array_equal(getattr(a.domain, name), getattr(b.domain, name), err_msg=name)
    for name in b.labels:
        np.testing.assert_array_equal(a.labels[name], b.labels[name], err_msg=name)
    for name in b.rewards:
        np.testing.assert_array_equal(a.row_reward(name), b.row_reward(name), err_msg=name)
    for name in b.variables:
        np.testing.assert_array_equal(a.variables[name], b.variables[name], err_msg=name)


@pytest.mark.parametrize(
    ("file", "instance", "constants"),
    [
        pytest.param(*b, id=b[1], marks=[pytest.mark.nightly] * (b[1] in ("Aircraft-50x10", "Glider-71x67")))
        for b in BENCHMARKS
    ],
)
def test_benchmarks_written_in_prism_are_the_same_models(file, instance, constants):
    model = prism.load(MODELS / f"{file}.prism", constants=constants)
    reference = rpl_envs.benchmark(instance)
    assert_same(model.pmdp, reference.pmdp)
    assert model.objective()[1] == reference.objective
    counts = rpl_envs.INSTANCES[instance].counts
    if counts is not None:
        assert (model.pmdp.num_states, model.pmdp.num_transitions, model.pmdp.num_expressions) == counts


SMALL = {
    "aircraft": {"width": 4, "height": 3},
    "betting": {"n": 4},
    "parallel_betting": {"n": 2},
    "glider": {"w": 5, "h": 4},
    "maintenance": {"shifts": 5},
}


@pytest.mark.parametrize("file", SMALL)
def test_compiled_tapes_keys_of_many_words_and_the_plain_evaluator_agree(file, monkeypatch):
    small = SMALL[file]
    text = (MODELS / f"{file}.prism").read_text()
    model = prism.loads(text, small)
    monkeypatch.setattr(lower, "WORD", 2)  # one word per variable
    assert lower.BitFields(model.program.variables).words == max(len(model.program.variables), 1)
    assert_same(prism.loads(text, small).pmdp, model.pmdp)

    def refuse(*_):
        raise NotVectorisable

    monkeypatch.setattr(Bytecode, "_compile", refuse)  # every guard and update asks the plain evaluator
    monkeypatch.setattr(explorer, "EAGER", 2)
    assert_same(prism.loads(text, small).pmdp, model.pmdp)
    monkeypatch.undo()
    slow = build_slowly(model.program, model.pmdp.domain, model.pmdp.action_names)
    assert slow.num_transitions == model.pmdp.num_transitions
    for name in ("state_ptr", "action", "row_ptr", "successor", "expression"):
        np.testing.assert_array_equal(getattr(slow, name), getattr(model.pmdp, name), err_msg=name)
    for f in range(slow.num_expressions):
        assert slow.table.polynomial(f) == model.pmdp.table.polynomial(f)
    for name in slow.labels:
        np.testing.assert_array_equal(slow.labels[name], model.pmdp.labels[name])


def test_exploration_does_not_depend_on_threads_or_room(monkeypatch):
    """Betting has levels of thousands of states; buffers that are too small for one state grow."""
    text, usual = (MODELS / "betting.prism").read_text(), (1, 1024, 1 << 14)
    for n, most, rooms in ((60, 10_000, ((2, 1024, 1 << 14), (5, 300, 1 << 12))), (20, 400, ((3, 7, 1), (1, 1, 40)))):
        program, found = prism.loads(text, {"n": n}).program, []
        for threads, states, buffer in (usual, *rooms):
            monkeypatch.setattr(explorer, "threads", lambda threads=threads: threads)
            monkeypatch.setattr(explorer, "BUFFER_STATES", states)
            monkeypatch.setattr(explorer, "BUFFER", buffer)
            graph, _ = explorer.explore(program, np.array([[v.initial for v in program.variables]]))
            arrays = (v for v in vars(graph).values() if isinstance(v, np.ndarray))
            found.append((tuple(graph.combinations), *((a.dtype, a.tobytes()) for a in arrays)))
        assert len(graph.keys) > most and all(other == found[0] for other in found)


def expressions(pmdp) -> set[Polynomial]:
    return {pmdp.table.polynomial(f) for f in range(pmdp.num_expressions)}


def test_decimals_are_exact():
    pmdp = prism.loads(
        "mdp const double p; module m x:[0..1]; [a] x=0 -> 0.1*p:(x'=1) + 1-0.1*p:true; [b] x=1 -> true; endmodule"
    ).pmdp
    assert expressions(pmdp) == {Polynomial.parse("0.1*p"), Polynomial.parse("1 - 0.1*p"), Polynomial.constant(1)}


def test_renaming_applies_inside_formulas():
    text = """mdp
    const double p; const double q;
    formula go = p/2 + 0.1*x;
    module a x : [0..1]; [t] x=0 -> go : (x'=1) + 1-go : true; [t] x=1 -> true; endmodule
    module b = a [x=y, p=q] endmodule
    """
    pmdp = prism.loads(text).pmdp
    assert pmdp.num_states == 4
    assert Polynomial.parse("p*q/4") in expressions(pmdp)
    assert Polynomial.parse("q/2") in expressions(pmdp), "x=1, y=0: the second module goes alone"


def test_renaming_of_actions_and_of_a_renamed_module():
    text = """mdp
    module a x : [0..1]; [t] x=0 -> (x'=1); endmodule
    module b = a [x=y, t=u] endmodule
    module c = b [y=z, u=v] endmodule
    """
    with pytest.warns(RPLWarning, match="1 state"):
        pmdp = prism.loads(text).pmdp
    assert pmdp.num_states == 8
    assert set(pmdp.action_names) == {"t", "u", "v", "deadlock"}
    assert pmdp.labels["deadlock"].sum() == 1


def test_synchronisation_multiplies_and_waits():
    text = """mdp const double p;
    module a x : [0..2]; [t] x<2 -> p : (x'=x+1) + 1-p : true; [r] x=2 -> (x'=0); endmodule
    module b y : [0..1]; [t] y=0 -> 0.5 : (y'=1) + 0.5 : true; [b] y=1 -> (y'=0); endmodule
    """
    pmdp = prism.loads(text).pmdp
    t = pmdp.action_names.index("t")
    ready = (pmdp.variables["x"] < 2) & (pmdp.variables["y"] == 0)
    np.testing.assert_array_equal([pmdp.find_row(s, t) >= 0 for s in range(pmdp.num_states)], ready)
    assert Polynomial.parse("0.5*p") in expressions(pmdp)


def test_choices_with_one_name_are_told_apart():
    pmdp = prism.loads(
        "mdp module m x:[0..2]; [a] x=0 -> (x'=1); [a] x=0 -> (x'=2); [a] x>0 -> true; [] x=2 -> (x'=0); endmodule"
    ).pmdp
    assert pmdp.action_names == ("a", "m.4", "a#2")
    assert np.diff(pmdp.state_ptr).tolist() == [2, 1, 2]


def test_dtmc_takes_enabled_commands_with_equal_chance():
    text = """dtmc const double p;
    module m x : [0..3]; [] x=0 -> p:(x'=1) + 1-p:(x'=2); [] x=0 -> (x'=3); [] x>0 -> true; endmodule
    rewards [] x=0 : 2; x=0 : 1; endrewards
    """
    model = prism.loads(text)
    assert model.pmdp.num_rows == 4
    assert expressions(model.pmdp) == {Polynomial.parse(t) for t in ("p/2", "0.5 - p/2", "0.5", "1")}
    assert model.pmdp.row_reward("rewards_1").tolist() == [3.0, 0.0, 0.0, 0.0]
    model.pmdp, objective = model.objective("R=? [F x>0]")
    assert objective.target == "x>0"


def test_division_by_a_variable_uses_exact_fractions():
    text = "mdp const double p; module m x:[1..7]; [a] x<7 -> p/x:(x'=x+1) + 1-p/x:true; [b] x=7 -> true; endmodule"
    pmdp = prism.loads(text).pmdp
    assert {Polynomial({(("p", 1),): Fraction(1, k)}) for k in range(1, 7)} <= expressions(pmdp)
    assert pmdp.num_expressions == 13


def test_long_decimals_in_products_do_not_overflow():
    parts = "\n".join(
        f"formula f{k} = 0.12345678901{k}*p; module m{k} x{k} : [0..1]; [a] x{k}=0 -> f{k}:(x{k}'=1) + 1-f{k}:true; "
        f"[a] x{k}=1 -> true; endmodule"
        for k in range(4)
    )
    pmdp = prism.loads(f"mdp const double p; {parts}").pmdp
    product = Polynomial.constant(1)
    for k in range(4):
        product = product * Polynomial.parse(f"0.12345678901{k}*p")
    assert pmdp.num_states == 16
    assert product in expressions(pmdp)


def test_zero_probabilities_lead_nowhere():
    pmdp = prism.loads("mdp module m x:[0..5]; [a] x<2 -> x/2:(x'=5) + 1-x/2:(x'=1); [a] x=5 -> true; endmodule").pmdp
    assert pmdp.variables["x"].tolist() == [0, 1, 5]
    assert np.diff(pmdp.row_ptr).tolist() == [1, 2, 1]


def test_functions_and_operators():
    text = """mdp
    const int N = 7; const bool big = N > 5 & !(N < 2) | false; const double h = pow(2.0, -1);
    formula half = floor(x/2);
    module m
      x : [0..N] init N; b : bool init big;
      [f] x>1 -> (x'=half) & (b'=(mod(x,3)=1 <=> ceil(x/3)>=round(x/3)) => b);
      [g] x<=1 & (x=0 ? b : !b | x>=1) -> h : (x'=min(x+3,N)) + 1-h : (x'=max(x-1,0));
      [h] x<=1 -> true;
    endmodule
    """
    model = prism.loads(text)
    slow = build_slowly(model.program, model.pmdp.domain, model.pmdp.action_names)
    assert model.pmdp.num_states == slow.num_states > 3
    np.testing.assert_array_equal(model.pmdp.successor, slow.successor)


def test_rewards_of_states_and_actions_add_up():
    text = """mdp module m x:[0..2]; [a] x<2 -> (x'=x+1); [b] x<2 -> true; [c] x=2 -> true; endmodule
    rewards "r" x=1 : x/4; true : 1; [a] x<1 : 10; endrewards
    """
    pmdp = prism.loads(text).pmdp
    assert pmdp.row_reward("r").tolist() == [11.0, 1.0, 1.25, 1.25, 1.0]


def test_ranges_constraints_and_given_parameters():
    text = """mdp const double p; const double q; const double r;
    // range p 0.2 0.4
    // constraint p + q <= 0.5
    // constraint 2*r >= 1
    module m x:[0..1]; [a] x=0 -> p:(x'=1) + q:true + 1-p-q:true; [b] x=0 -> r:(x'=1)+1-r:true;
    [a] x=1 -> true; endmodule
    """
    domain = prism.loads(text, parameters={"q": (0.0, 0.3)}).pmdp.domain
    assert domain.parameters == ("p", "q", "r")
    assert domain.lower.tolist() == [0.2, 0.0, 0.5]
    assert domain.upper.tolist() == [0.4, 0.3, 1.0]
    assert domain.A.tolist() == [[1.0, 1.0, 0.0]]
    assert domain.b.tolist() == [0.5]


def test_affine_models_get_the_constraints_they_need():
    text = """mdp const double p; const double q;
    module m x:[0..2]; [a] x=0 -> p:(x'=1) + q:true + 1-p-q:(x'=2); [a] x>0 -> true; endmodule
    """
    domain = prism.loads(text).pmdp.domain
    assert not domain.contains(np.array([0.7, 0.7]))
    assert domain.contains(np.array([0.5, 0.5]))


def test_state_formulas_become_labels():
    text = """mdp const double p; const int K = 3;
    module m x:[0..4]; [a] x<4 -> p:(x'=x+1) + 1-p:(x'=0); [a] x=4 -> true; endmodule
    label "top" = x=4;
    """
    model = prism.loads(text)
    model.pmdp, objective = model.objective('Pmin=? [ x<K U<=7 "top" ]')
    assert (objective.target, objective.avoid, objective.horizon) == ("top", "!x<K", 7)
    assert model.pmdp.labels["!x<K"].tolist() == [False, False, False, True, True]
    model.pmdp, objective = model.objective('Pmax=? [ F<3 x=2 & !"deadlock" | "top" ]')
    assert objective.horizon == 2
    assert model.pmdp.labels[objective.target].tolist() == [False, False, True, False, True]
    assert model.objective('Pmax=? [ !"top" U x=1 ]')[1].avoid == "top"
    assert model.objective("Pmax=? [ true U x=1 ]")[1].avoid is None


def test_states_of_more_than_62_bits_are_read():
    text = """mdp const double p;
    module m
      x:[0..1000000000000]; y:[-5..1000000000000]; z:[0..1000000000000];
      [a] x<3 -> p:(x'=x+1)&(y'=x*7)&(z'=1000000000000-x) + 1-p:true;
      [a] x>=3 -> true;
    endmodule
    """
    variables = prism.loads(text).pmdp.variables
    assert variables["x"].tolist() == [0, 1, 2, 3]
    assert variables["y"].tolist() == [-5, 0, 7, 14]
    assert variables["z"].tolist() == [0, 10**12, 10**12 - 1, 10**12 - 2]


def test_loading_is_silent_without_deadlocks():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert prism.load(MODELS / "maintenance.prism").pmdp.num_states == 285


@pytest.mark.parametrize("denominator", [3, 7, 11, 97, 1_000_003])
def test_probabilities_that_no_float_holds_keep_the_bounds_true(denominator, sized):
    """Thirds are rounded once: the margins of rows have to be larger than that."""
    rng = np.random.default_rng(denominator)
    for _ in range(sized(8, 20)):
        n = int(rng.integers(2, 6))  # state n is the goal, n + 1 a sink
        commands = []
        for state in range(n):
            after = rng.permutation(n + 2)[:3]
            cuts = np.sort(rng.integers(0, denominator + 1, 2)).tolist()
            shares = zip(after, np.diff([0, *cuts, denominator]))
            updates = [f"{share}/{denominator}:(x'={successor})" for successor, share in shares if share]
            commands.append(f"[] x={state} -> {' + '.join(updates)};")
        text = f"dtmc module m x:[0..{n + 1}]; {' '.join(commands)} [] x>={n} -> true; endmodule"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RPLWarning)  # a goal that nothing leads to
            model = prism.loads(text)
            answer = prism.answer(model, f"P=? [ F x={n} ]")[0]
            query = model.query(f"P=? [ F x={n} ]")
            true = exact_value(query.pmdp, query.objective, [], None)
        assert Fraction(answer.lower) <= true <= Fraction(answer.upper) <= Fraction(answer.lower) + Fraction(1, 10**9)
