"""The report's first screen: what it says holds, and is what the certificate says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rpl_envs
from rpl_agent import Counts, Objective, RPLAgent, build, certify
from rpl_agent.studies.experiments.api import report_run
from rpl_agent.studies.experiments.report.answer import answer, closing_chart, rivals
from rpl_agent.studies.experiments.report.charts import log_axis
from rpl_agent.studies.experiments.report.open_run import fields_table

POINTS = {
    "episodes": np.array([10.0, 20.0]),
    "guarantee/lower": np.array([0.2, 0.284]),
    "guarantee/upper": np.array([0.4, 0.2944]),
    "guarantee/gap": np.array([0.2, 0.0109]),
    "guarantee/regret": np.array([0.1, 0.00026]),
}


def _courier():
    def roads(state):
        if state != "start":
            return {"stop": {state: 1}}
        return {"fast": {"home": "1 - ice", "accident": "ice"}, "slow": {"home": "1 - 0.1*ice", "accident": "0.1*ice"}}

    return build(
        "start",
        roads,
        domain={"ice": (0, 0.5)},
        labels={"done": lambda s: s != "start", "accident": lambda s: s == "accident"},
        rewards={"hours": lambda s, a: {"fast": 1.0, "slow": 3.0}.get(a, 0.0)},
    )


def _certificate(limits=(), **fields):
    """Of the courier, whose numbers are then replaced."""
    pmdp = _courier()
    found = certify(pmdp, Counts(pmdp), "minimise hours until done", subject_to=list(limits))
    return replace(found, **fields)


@pytest.mark.parametrize(("maximise", "guaranteed", "best"), [(True, "0.283", "0.295"), (False, "0.295", "0.283")])
def test_names_of_curves_have_the_certificates_numbers_rounded_outward(maximise, guaranteed, best):
    """A run may end with another certificate than its last point, as one that is proved."""
    certificate = _certificate(lower=0.28351, upper=0.29449, regret=0.00026612)
    chart = closing_chart(POINTS, certificate, maximise, rivals(certificate))
    names = [trace["name"] for trace in chart.panels["run"]["traces"] if trace.get("showlegend")]
    assert names == [
        f"no policy is better: now {best}",
        f"guaranteed: now {guaranteed}",
        "regret: now at most 0.000267",
    ]


def test_a_limited_run_says_nothing_of_policies_that_break_the_limits():
    """The page said "no policy costs less than 2" where fast ones do."""
    limited = _certificate(["probability of accident <= 0.1"], lower=2.0, upper=3.0, regret=1.0)
    text = answer(limited, POINTS)
    assert "no policy that keeps every limit costs less than 2" in text and "no policy costs" not in text
    assert "of the best within the limits" in text
    names = str(closing_chart(POINTS, limited, False, rivals(limited)).panels)
    assert "no policy that keeps every limit is better: now 2" in names


def test_bounds_on_one_policy_say_nothing_of_others():
    """So it is where no policy keeps the limits."""
    alone = _certificate(lower=2.0, upper=3.0, evaluated=True)
    text = answer(replace(alone, regret=float("inf")), POINTS)
    assert "no policy" not in text and "of the best" not in text
    assert "no policy" not in str(closing_chart(POINTS, alone, False, rivals(alone)).panels)


def test_the_table_of_a_certificate_has_all_digits():
    certificate = _certificate(upper=2.0000000049)
    assert ["upper", "2.0000000049"] in fields_table(certificate.to_dict()).rows


def test_the_page_of_a_model_without_a_name_is_named_after_its_run(tmp_path):
    """It was "model: certified policy"."""
    hours = Objective.parse("minimise hours until done")
    env = rpl_envs.make_own(_courier(), hours, {"ice": 0.04}, max_episode_steps=5)
    RPLAgent(env, objective=hours, seed=0).learn(budget=5, folder=tmp_path / "mondays")
    report_run(tmp_path / "mondays")
    page = (tmp_path / "mondays" / "report.html").read_text()
    assert "<h1>mondays: certified policy</h1>" in page and " on model" not in page


@pytest.mark.parametrize(
    ("values", "marks"), [((10, 15), None), ((0.003, 0.03), "D2"), ((10, 2000), "D2"), ((1, 10**6), 1), ((), None)]
)
def test_labels_of_logarithmic_axes_are_written_out(values, marks):
    """0.002 was a small "2" that stood in the label of 0.01."""
    axis = log_axis([*values, 0.0, np.nan])
    assert axis["tickformat"] == "," and axis.get("dtick") == marks
