"""What all tests share."""

import gc
import os
import random
from functools import partial

gc.disable()  # until all tests are imported: what that makes stays
for library in ("OMP", "OPENBLAS"):  # before numpy is imported: every core has a worker, and threads that wait spin
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402
from numpy.random import bit_generator  # noqa: E402

from rpl_agent.agent import attached, loop, schedule  # noqa: E402
from rpl_agent.agent.schedule import Doubling  # noqa: E402
from rpl_agent.core.coupled import pieces  # noqa: E402
from rpl_agent.core.coupled.gradients import over_cuts  # noqa: E402

AS_SHIPPED = schedule.LOG_GROWTH
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("day", max_examples=10, derandomize=True, deadline=None, suppress_health_check=SLOW)
settings.register_profile("night", max_examples=500, deadline=None, suppress_health_check=SLOW)


def is_day(config):
    return config.getoption("markexpr") == "not nightly"


def pytest_configure(config):
    """By day the same few examples every time, by night many new ones."""
    settings.load_profile("day" if is_day(config) else "night")


def pytest_collection_finish():
    """Every collection of garbage would go through what was imported: a twentieth of all time.

    Hypothesis measures every one of them, so they are made seldom.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def short_runs(request):
    """Nothing, unless a module with many runs says ``pytestmark = pytest.mark.short_runs``.

    Then runs end with a proof in exact fractions only where it is short. By day a run without an interval is certified
    after 10, 40, 160, … episodes, and one without a schedule plans anew when half of its episodes are new, because
    certificates and plans on the way are most of its work; certificates leave out the longest searches, over pieces of
    the region and over cuts, which have tests of their own. By night all is as users have it.
    """
    if request.node.get_closest_marker("short_runs") is None:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "PROVED", 300)
        if is_day(request.config):
            patch.setattr(schedule, "LOG_GROWTH", 4.0)
            patch.setattr(pieces, "CHECKED", 0)
            patch.setattr(over_cuts, "NUMBERS", 0)
            patch.setattr(attached, "Doubling", partial(Doubling, spacing=1.0))
            patch.setitem(schedule.NAMED, "state-action", Doubling(spacing=1.0))
        yield


@pytest.fixture(autouse=True)
def repeatable_chance(request, monkeypatch):
    """Generators without a seed (Gymnasium's spaces draw from one) depend on the test's name, so that a failure can be
    repeated; `make nightly` sets another RPL_TEST_SEED every day."""
    entropy = random.Random(f"{os.environ.get('RPL_TEST_SEED', 0)} {request.node.nodeid}")
    monkeypatch.setattr(bit_generator, "randbits", entropy.getrandbits)


@pytest.fixture
def sized(request):
    """sized(few, many): a number of repetitions by day, and by night."""
    return lambda few, many: few if is_day(request.config) else many


@pytest.fixture
def all_looks(monkeypatch):
    """Certificates and plans on the way as users have them, for tests about them in a module of short runs."""
    monkeypatch.setattr(schedule, "LOG_GROWTH", AS_SHIPPED)
    monkeypatch.setattr(attached, "Doubling", Doubling)
    monkeypatch.setitem(schedule.NAMED, "state-action", Doubling())
