"""Boxes that cover a region: their parts, when they are split, and the bounds of a value in them."""

from __future__ import annotations

import numpy as np
import pytest

from rpl_agent.core.coupled import pieces
from rpl_agent.core.coupled.pieces import BoxNode, affordable_pieces, hopeless_bound, split_boxes, worst_of_boxes
from rpl_agent.core.regions.base import Box
from rpl_agent.core.regions.intersection import Boxed, Ellipsoid, Intersection
from rpl_agent.core.regions.polytope import Polytope
from rpl_agent.core.regions.product import Product
from rpl_agent.core.regions.sliced import Sliced


def disc() -> Intersection:
    """A disc of radius 1 at (1, 1), of which x + y ≤ 2.5 is left."""
    half = Polytope(np.ones((1, 2)), np.array([2.5]), np.zeros(2), 2.0 * np.ones(2))
    return Intersection([half, Ellipsoid(np.ones(2), np.eye(2), 1.0)])


def test_the_parts_of_a_region_bound_their_points_and_cover_it():
    rng, region = np.random.default_rng(1), disc()
    points = rng.uniform(0.0, 2.0, (400, 2))
    points = points[region.contains(points)]
    directions = rng.normal(size=(40, 2))
    below, above = (
        Boxed(region, np.array(a), np.array(b)) for a, b in (((0.0, 0.0), (0.8, 2.0)), ((0.8, 0.0), (2.0, 2.0)))
    )
    for part in (below, above):
        inside = points[part.contains(points)]
        assert len(inside) > 50
        assert (part.minimize(directions)[:, None] <= directions @ inside.T + 1e-12).all()
    assert (below.contains(points) | above.contains(points)).all()
    assert above.minimize(np.array([[1.0, 0.0]]))[0] == pytest.approx(0.8)  # the box is felt, not only the region
    assert above.minimize(np.array([[0.0, -1.0]]))[0] == pytest.approx(-1.7)  # and its corner with the region's row


def bounded(tried: list[tuple[float, float]], lost: float = 1.0):
    """Attempts over boxes of one coordinate, with the bound high + lost · width²."""

    def attempt(piece, frame):
        low, high = piece.box()
        assert np.allclose([frame.center - frame.half, frame.center + frame.half], [low, high])
        tried.append((low[0], high[0]))
        return high[0] + lost * (high[0] - low[0]) ** 2

    return attempt


LINE, AXIS = Box(np.zeros(1), 2.0 * np.ones(1)), np.ones((1, 1))


def test_the_worst_box_is_halved_until_the_budget_is_spent():
    tried: list[tuple[float, float]] = []
    found = worst_of_boxes(LINE, AXIS, bounded(tried), 4)
    assert tried == [(0, 2), (0, 1), (1, 2), (1.5, 2), (1, 1.5), (1.75, 2), (1.5, 1.75)]  # the worse half first
    assert found == 2.0 + 0.25**2


@pytest.mark.parametrize(
    ("settings", "attempts", "found"),
    [
        ({"enough": 3.0}, 3, 3.0),  # good enough
        ({"enough": 2.9}, 5, 2.25),
        ({"least": 3.1}, 3, 6.0),  # a split that gains 3 is not worth it
        ({"least": 2.9}, 5, 3.0),  # the next one gains 0.75
        ({"useless": 1.5}, 5, 2.25),  # the last split gained 0.75, which leaves 1.5 for the one that is left
        ({"useless": 1.6}, 7, 2.0625),
        ({"hopeless": 5.9}, 1, np.inf),
        ({"hopeless": 6.0}, 7, 2.0625),
    ],
)
def test_boxes_are_split_where_that_pays(settings, attempts, found):
    tried: list[tuple[float, float]] = []
    assert worst_of_boxes(LINE, AXIS, bounded(tried), 4, **settings) == found
    assert len(tried) == attempts


def test_some_regions_have_no_pieces():
    tried: list[tuple[float, float]] = []
    many = Box(np.zeros(8), np.ones(8))
    assert worst_of_boxes(LINE, AXIS, bounded(tried), 1) == worst_of_boxes(many, np.eye(8), bounded(tried), 9) == np.inf
    assert tried == []


@pytest.mark.parametrize(
    ("transitions", "horizon", "pieces"),
    [(10, None, 8), (20_000, None, 5), (25_000, None, 4), (25_001, None, 1), (10, 2_500, 4), (10, 2_501, 1)],
)
def test_fewer_than_four_pieces_are_not_tried(transitions, horizon, pieces):
    assert affordable_pieces(8, transitions, horizon) == pieces
    assert affordable_pieces(1, transitions, horizon) == affordable_pieces(3, transitions, horizon) == 1


def test_empty_boxes_have_no_bound():
    """x + y ≤ 1 leaves nothing of the last quarter."""
    corner = Polytope(np.ones((1, 2)), np.array([0.9]), np.zeros(2), np.ones(2))
    seen = []

    def attempt(piece, frame):
        seen.append(piece)
        return float(-piece.minimize(-np.ones((1, 2)))[0] + frame.half.sum())

    assert worst_of_boxes(corner, np.eye(2), attempt, 4) < 0.9 + 1.0
    assert all(not part.is_empty for part in seen)


def test_the_axis_that_gains_most_is_split():
    def attempt(low, high):
        return float((high - low)[1]), None

    root = BoxNode(np.zeros(2), np.array([5.0, 1.0]), 1.0)
    assert split_boxes(root, attempt, np.ones(2), 2, 0.0) == 0.5 and root.axis == 1


def of_axes(*lost):
    """(the bound of a box that loses so much per square of each width, the widths of the boxes that were tried)."""
    tried = []

    def attempt(low, high):
        tried.append((high - low).tolist())
        return float(np.dot(lost, (high - low) ** 2)), None

    return attempt, tried


def test_axes_are_tried_while_they_promise_more():
    attempt, tried = of_axes(1.0, 3.0)
    root = BoxNode(np.zeros(2), np.full(2, 8.0), 256.0)
    assert split_boxes(root, attempt, np.array([2.0, 1.0]), 4, 0.0, least=0.0) == 64.0
    assert tried[:4] == [[4, 8], [4, 8], [8, 4], [8, 4]]  # nothing is known yet
    assert tried[4:] == [[4, 4]] * 4  # which gains the promised 48, and a half along the other axis promises 36


def test_axes_that_promise_less_are_left():
    attempt, tried = of_axes(1.0, 1.0)
    root = BoxNode(np.zeros(2), np.array([8.0, 2.0]), 68.0)
    split_boxes(root, attempt, np.ones(2), 3, 0.0, least=0.0)
    assert tried == [[4, 2], [4, 2], [8, 1], [2, 2], [2, 2]]


def test_an_axis_that_gained_nothing_is_tried_again():
    tried = []

    def attempt(low, high):
        widths = (high - low).tolist()
        tried.append(widths)
        return {(4, 8): 9.0, (8, 4): 6.0, (4, 4): 1.0}.get(tuple(widths), 5.5), None

    root = BoxNode(np.zeros(2), np.full(2, 8.0), 8.0)
    assert split_boxes(root, attempt, np.array([2.0, 1.0]), 4, 0.0, least=0.0) == 1.0
    assert tried[:5] == [[4, 8], [4, 8], [8, 4], [8, 4], [4, 4]]


def test_all_axes_are_tried_before_a_split_is_not_worth_it():
    attempt, tried = of_axes(1.0, 0.9)
    root = BoxNode(np.zeros(2), np.full(2, 8.0), 64.0 + 0.9 * 64.0)
    split_boxes(root, attempt, np.ones(2), 8, 0.0, least=47.0)
    assert tried == [[4, 8], [4, 8], [8, 4], [4, 4], [4, 4], [2, 8]]


@pytest.mark.parametrize("seed", range(20))
def test_a_split_that_is_given_up_early_would_not_be_the_best(seed):
    """The same boxes as if both halves of every split were bounded, ties and boxes without a bound among them."""
    tried, levels = [[], []], np.random.default_rng(seed).choice([0.1, 0.3, 0.7, np.inf], (4, 4))

    def of(number):
        def attempt(low, high):
            tried[number].append((low.tolist(), high.tolist()))
            a, b = np.floor(low + 1e-9).astype(int) % 4, np.ceil(high).astype(int) % 4
            return float(levels[a[0], b[1]] + levels[b[2], a[1]]), None

        return attempt

    def in_full(splits, node, axis, most):
        return halved(splits, node, axis, np.inf)

    halved = pieces.BoxSplits._halved
    roots = [BoxNode(np.zeros(3), np.array([3.0, 2.0, 5.0]), 2.0) for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces.BoxSplits, "_learn", lambda *_: None)  # all axes are tried
        split_boxes(roots[0], of(0), np.ones(3), 8, 0.0, least=0.0)
        patch.setattr(pieces.BoxSplits, "_halved", in_full)
        split_boxes(roots[1], of(1), np.ones(3), 8, 0.0, least=0.0)

    def shape(node):
        return (node.bound, node.axis, node.halves and [shape(half) for half in node.halves])

    assert shape(roots[0]) == shape(roots[1]) and len(tried[0]) <= len(tried[1])


def test_a_split_whose_first_half_is_worse_is_given_up():
    tried = []

    def attempt(low, high):
        tried.append((high - low).tolist())
        return (1.0 if high[0] - low[0] == 2.0 else 5.0), None

    root = BoxNode(np.zeros(2), np.array([4.0, 4.0]), 9.0)
    assert split_boxes(root, attempt, np.ones(2), 2, 0.0) == 1.0
    assert tried == [[2.0, 4.0], [2.0, 4.0], [4.0, 2.0]]


def test_the_half_that_was_worse_is_tried_first():
    """The bound is high[0] + low[1], so that the upper half is the worse one along both axes."""
    tried = []

    def attempt(low, high):
        tried.append((low.tolist(), high.tolist()))
        return float(high[0] + low[1]), None

    root = BoxNode(np.zeros(2), np.array([4.0, 3.9]), 8.0)
    assert split_boxes(root, attempt, np.ones(2), 3, 0.0, least=0.0) == 4.0
    assert [low for low, _ in tried[:4]] == [[0, 0], [2, 0], [0, 0], [0, 1.9375]]  # nothing is known yet
    assert [low for low, _ in tried[4:]] == [[2, 1.9375], [2, 0], [3, 0], [2, 0]]


def test_the_members_of_a_sliced_region_answer_for_it():
    product = Product(np.arange(3), np.zeros(2), np.ones(2), np.zeros(2), np.ones(2))  # two blocks of a coordinate
    region = Sliced(product, Ellipsoid(0.5 * np.ones(2), np.eye(2), 0.4), np.ones((1, 2)), np.array([1.2]))
    rng = np.random.default_rng(2)
    points, directions = rng.uniform(0.0, 1.0, (300, 2)), rng.normal(size=(30, 2))
    apart = region.apart()
    inside = points[region.contains(points)]
    assert (apart.contains(points) == region.contains(points)).all() and len(inside) > 50
    assert (apart.minimize(directions)[:, None] <= directions @ inside.T + 1e-12).all()
    assert (apart.minimize(directions) >= region.product.minimize(directions)).all()
    assert apart.minimize(-np.ones((1, 2)))[0] == pytest.approx(-1.2)
    bare = Sliced(product, None, np.ones((1, 2)), np.array([1.2])).apart()
    assert bare.minimize(np.array([[1.0, 0.0]]))[0] == pytest.approx(0.0)


def test_boxes_leave_a_share_of_the_slack():
    """Sixteen boxes in two dimensions: 16^(−3/4) = 1/8 of it, so that 1 + 16 / 8 is reached."""
    assert hopeless_bound(1.0, 3.0, 16, 2) == 1.0 + 16.0
    assert hopeless_bound(3.0, 1.0, 16, 2) < 1.0  # useless without any slack


def test_a_box_without_width_along_an_axis():
    attempt, tried = of_axes(0.0, 1.0)
    root = BoxNode(np.zeros(2), np.array([0.0, 8.0]), 64.0)
    assert split_boxes(root, attempt, np.array([9.0, 1.0]), 4, 0.0, least=0.0) == 4.0
    assert sorted({h for _, h in map(tuple, tried)}) == [2.0, 4.0, 8.0]
