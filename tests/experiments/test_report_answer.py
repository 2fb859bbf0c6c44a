"""The report's first picture: what its labels say holds."""

from __future__ import annotations

import numpy as np
import pytest

from rpl_agent.studies.experiments.report.answer import closing_chart


@pytest.mark.parametrize(("maximise", "guaranteed", "best"), [(True, "0.283", "0.295"), (False, "0.295", "0.283")])
def test_labels_of_bounds_are_rounded_outward(maximise, guaranteed, best):
    points = {
        "episodes": np.array([10.0, 20.0]),
        "guarantee/lower": np.array([0.2, 0.28351]),
        "guarantee/upper": np.array([0.4, 0.29449]),
        "guarantee/gap": np.array([0.2, 0.0109]),
        "guarantee/regret": np.array([0.1, 0.00026612]),
    }
    text = str(closing_chart(points, 0.001, maximise))
    assert f"guaranteed: now {guaranteed}'" in text and f"no policy is better: now {best}'" in text
    assert "regret: now at most 0.000267" in text
