"""The boundary to C: lengths are checked, only what core.h declares is exported, and every function has a test."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from rpl_agent.core.native import build, core

TESTS = Path(__file__).resolve().parents[1]
DECLARED = re.findall(r"^\w+ (\w+)\(", build.declarations(), re.MULTILINE)
#: Functions that no test calls by name, and the tests that compare what they compute, through the Python that calls
#: them, with a slow reference, a library or exact rationals.
TESTED_BY = {
    "regions/test_regions_support.py": """support_box_many support_ellipsoid_many first_vertex grow_table box_graph
        cut_by_rows tighten_box fill_table minimize_interval_blocks negative_parts""",
    "regions/test_regions_lifting.py": "mccormick propagate_products",
    "solver/test_solver_kernels.py": """row_bounds hull_strategies region_strategies bellman backward row_totals
        state_images row_means assemble chain_residual relax_chain tidy retry_costs value_sweeps
        backward_order front_of""",
    "solver/test_solver_known.py": "solve_known",
    "core/test_core_memory.py": "give_back",
    "solver/test_solver_horizon.py": "horizon_images horizon_backward",
    "solver/test_solver_check.py": "mass_to_move moving_costs",
    "solver/test_solver_holding.py": """predecessors attainable staying_rows hold_set finite_set progress_rows
        runs_forward forward_order components layers extract""",
    "evidence/test_evidence_counts.py": "locate",
    "evidence/test_evidence_intervals.py": "multiplicities pool_events anytime_bounds",
    "formats/test_prism_models.py": "insert_row rehash explore_scratch explore",
    "model/test_model_simulate.py": "seed_state cumulate run_episodes",
    "envs/test_envs_vector.py": "reset_lanes find_rows action_masks",
    "baselines/test_baselines_tabular.py": "plan_optimistically",
    "likelihood/test_likelihood_core.py": """log_likelihoods rounding_size coordinates jacobian
        inverse_factor penalised newton""",
    "likelihood/test_aims.py": "fit_rows spread_rows aim passages",
    "coupled/test_coupled.py": """expand_backward reach_forward greedy_steps visit_forward visit_steps reach_steps
        expand_steps raise_steps""",
    "coupled/test_swept_chain.py": "policy_chain policy_sums policy_reach row_values",
    "evidence/test_repetition.py": "mix_words episode_codes window_codes compare_contexts move_contexts",
    "open_world/test_stakes.py": "stake_upper open_sweeps",
}


def test_every_function_has_a_test_or_a_reference():
    """A new function of core.h is called by a test, or stands in the table above."""
    listed = {name for names in TESTED_BY.values() for name in names.split()}
    texts = "\n".join(path.read_text() for path in TESTS.rglob("*.py") if path != Path(__file__))
    called = set(re.findall(r"\bcore\.(\w+)", texts))
    assert set(DECLARED) - called - listed == set()
    assert listed - set(DECLARED) == set()
    assert [name for name in TESTED_BY if not (TESTS / name).is_file()] == []


def test_only_what_the_header_declares_is_exported():
    library = build.products()[0].read_bytes()
    assert all(name.encode() + b"\0" in library for name in DECLARED)
    sources = [path.read_text() for path in build.sources() if path.suffix == ".c"]
    defined = {name for text in sources for name in re.findall(r"^(?:[a-z]\w* )+\*?(\w+)\([^;]*?\)\n\{", text, re.M)}
    assert set(DECLARED) <= defined
    with pytest.raises(AttributeError):
        core._ffi.dlopen(str(build.products()[0])).normalise  # noqa: B018  # shared by two C files, hidden outside


def test_c_files_depend_on_each_other_in_one_direction():
    """No circles between them: what two files share stands in a third, or in a header."""
    texts = {path.stem: re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S) for path in build.HERE.glob("*.c")}
    define = re.compile(r"^(?!static)(?:[a-z]\w* )+\*?(\w+)\([^;{]*?\)\n\{", re.M)
    home = {name: stem for stem, text in texts.items() for name in define.findall(text)}
    called = {stem: set(re.findall(r"\b(\w+)\(", text)) for stem, text in texts.items()}
    uses = {stem: {home[name] for name in home.keys() & called[stem] if home[name] != stem} for stem in texts}
    assert len(home) >= len(DECLARED)
    while leaves := {stem for stem, used in uses.items() if not used}:
        uses = {stem: used - leaves for stem, used in uses.items() if stem not in leaves}
    assert uses == {}


def test_arrays_that_are_too_short_are_refused():
    """In C they would be read past their end: the lengths of the header are checked in every call."""
    five = np.arange(5.0)
    with pytest.raises(ValueError, match="any_faint: values has 5 numbers, and needs 10000 = count"):
        core.any_faint(10**4, five)
    with pytest.raises(ValueError, match=r"support_ellipsoid_many: factor has 5 numbers, and needs 25 = n \* n"):
        core.support_ellipsoid_many(1, 5, five, five, 1.0, five, np.empty(1))
    with pytest.raises(ValueError, match="row_arrays: successor has 1 numbers, and needs 2 = row_ptr"):
        core.RowArrays(count=1, row_ptr=np.array([0, 2]), successor=np.zeros(1, "i4"), expression=np.zeros(2, "i4"))
    rows = core.RowArrays(count=1, row_ptr=np.array([0, 2]), successor=np.zeros(2, "i4"), expression=np.zeros(2, "i4"))
    with pytest.raises(ValueError, match=r"row_means: p has 1 numbers, and needs 2 = model\.row_ptr\[model\.count\]"):
        core.row_means(rows, five, 1.0, np.zeros(1), np.zeros(1), np.zeros(1))
    assert not core.any_faint(3, five)  # longer than needed is fine


def test_a_type_is_checked_before_a_length():
    with pytest.raises(TypeError, match="any_faint: values needs a float64 array, got"):
        core.any_faint(1, [1.0])


def test_arrays_that_c_cannot_take_are_named():
    matrices, out = np.array([[2.0, 1.0, 2.0]]), np.empty(1)
    with pytest.raises(TypeError, match=r"any_faint: values: .*contiguous"):
        core.any_faint(2, np.arange(4.0)[::2])
    out.flags.writeable = False
    with pytest.raises(TypeError, match=r"negative_parts: .*read-only"):
        core.negative_parts(1, 2, matrices, None, out)


def test_arrays_of_other_classes_and_equal_types_are_taken(tmp_path):
    loud = np.full(3, 1e-300)
    loud.tofile(tmp_path / "loud")
    assert core.any_faint(3, pickle.loads(pickle.dumps(loud)))
    assert core.any_faint(3, np.memmap(tmp_path / "loud", np.float64))
    with pytest.raises(TypeError, match="any_faint: values needs a float64 array, got"):
        core.any_faint(1, np.float64(1.0))


def test_scratch_memory_is_made_where_none_is_given():
    matrices = np.array([[2.0, 1.0, 2.0], [1.0, 3.0, 1.0]])  # lower triangles of 2 by 2
    given, made = np.empty(2), np.empty(2)
    core.negative_parts(2, 2, matrices, np.empty(3), given)
    core.negative_parts(2, 2, matrices, None, made)
    assert np.array_equal(given, made) and made[1] >= 2.0
    with pytest.raises(ValueError, match="negative_parts: factor has 2 numbers"):
        core.negative_parts(2, 2, matrices, np.empty(2), made)
