"""Products cut by an ellipsoid and by slabs: support queries against exact rational minima and against points."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
import pytest

from rpl_agent.core.errors import ModelError
from rpl_agent.core.regions import Box, Ellipsoid, Product
from rpl_agent.core.regions.sliced import FEW, Sliced
from tests.reference.regions import exact_minimum


def random_sliced(random: Random, slabs: int) -> tuple[Sliced, np.ndarray, np.ndarray]:
    """A product of interval blocks and boxes, cut by rows; and all of it as rows A x <= b beside its bounds.

    Numbers are multiples of 1/16, so that the rows say exactly what the region does.
    """
    pointer, lower, upper, rest, regions, rows, ends = [0], [], [], [], {}, [], []
    for k, size in enumerate(random.choice([(1, 1), (1, 2), (2, 1), (1, 1, 1)])):
        low = [random.randint(0, 4) / 16 for _ in range(size)]
        high = [a + random.randint(1, 4) / 16 for a in low]
        lower, upper = lower + low, upper + high
        pointer.append(pointer[-1] + size)
        rest.append((random.randint(0, 2) / 16, random.randint(13, 16) / 16))
        if random.random() < 0.3:
            regions[k] = Box(low, high)
    r = pointer[-1]
    for k, (least, most) in enumerate(rest):
        own = np.zeros(r)
        own[pointer[k] : pointer[k + 1]] = 1.0
        if k not in regions:
            rows, ends = [*rows, own, -own], [*ends, 1.0 - least, most - 1.0]
    product = Product(pointer, lower, upper, *zip(*rest), regions)
    A = np.array([[random.randint(-8, 8) / 8 for _ in range(r)] for _ in range(slabs)]).reshape(slabs, r)
    middle = (np.array(lower) + np.array(upper)) / 2
    b = np.array([float(np.round((a @ middle + random.randint(0, 2) / 32) * 64) / 64) for a in A])
    return Sliced(product, None, A, b), np.vstack([np.reshape(rows, (-1, r)), A]), np.append(ends, b)


@pytest.mark.parametrize("seed", [*range(30), *(pytest.param(k, marks=pytest.mark.nightly) for k in range(30, 60))])
def test_queries_are_below_exact_minima_and_close(seed):
    """Weak duality never exceeds the exact rational optimum, and the program's multipliers reach it."""
    random = Random(seed)
    region, rows, ends = random_sliced(random, random.randint(1, 3))
    low, high = region.product.lower, region.product.upper
    for _ in range(2):
        c = np.array([random.randint(-16, 16) / 8 for _ in low])
        exact = exact_minimum(rows, ends, low, high, c)
        found = float(region.minimize(c[None])[0])
        if exact is None:
            continue
        assert Fraction(found) <= exact
        if not region.product.is_empty and c.any():
            assert found >= float(exact) - 1e-6 * (1.0 + abs(float(exact)))


@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(k, marks=pytest.mark.nightly) for k in range(10, 40))])
def test_no_point_of_the_region_is_beyond_a_bound(seed):
    """With an ellipsoid as well, all points that satisfy everything satisfy every bound; slabs make it tighter."""
    random, rng = Random(seed), np.random.default_rng(seed)
    plain, _, _ = random_sliced(random, 2)
    r = plain.dimension
    factor = rng.normal(size=(r, r)) + 2.0 * np.eye(r)
    low, high = plain.product.box()
    around = Ellipsoid((low + high) / 2, factor @ factor.T * 20.0, 1.0)
    region = Sliced(plain.product, around, plain.A, plain.b)
    points = np.vstack([low + (high - low) * rng.random((4000, r)), around.center + 0.2 * rng.normal(size=(4000, r))])
    points = points[region.contains(points)]
    directions = rng.normal(size=(FEW, r))
    bounds, rough = region.minimize(directions), region.minimize(np.repeat(directions, 2, axis=0))[::2]
    assert (bounds >= rough).all()  # many directions at once are answered without multipliers
    assert (points @ directions.T >= bounds - 1e-12).all()
    box = region.box()
    assert (points >= box[0] - 1e-9).all() and (points <= box[1] + 1e-9).all()


def test_multipliers_join_slab_and_ellipsoid():
    """min x + y over |(x, y)| <= 1 and y >= 0.5, which neither the disc nor the slab within its box tell alone."""
    product = Product([0, 1, 2], [-2.0, -2.0], [2.0, 2.0], [-3.0, -3.0], [3.0, 3.0])
    disc = Ellipsoid(np.zeros(2), np.eye(2), 1.0)
    region = Sliced(product, disc, np.array([[0.0, -1.0]]), np.array([-0.5]))
    assert region.minimize(np.array([[1.0, 1.0]]))[0] == pytest.approx(0.5 - 0.75**0.5, abs=1e-4)


def test_contradicting_slabs_are_empty():
    product = Product([0, 1], [0.0], [1.0], [0.0], [1.0])
    assert Sliced(product, None, np.array([[1.0]]), np.array([-0.1])).is_empty
    with pytest.raises(ModelError, match="slabs"):
        Sliced(product, None, np.array([[1.0, 1.0]]), np.array([0.5]))
    with pytest.raises(ModelError, match="ellipsoid"):
        Sliced(product, Ellipsoid(np.zeros(2), np.eye(2), 1.0), np.zeros((0, 1)), np.zeros(0))
