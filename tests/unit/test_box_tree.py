"""Box trees against brute force: where each row goes, what each box holds, and how boxes tile."""

import itertools
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dbt_recluster.key.box_tree import (
    SHARE,
    SHARES,
    BoxTree,
    Points,
    box_costs,
    cut_into_boxes,
    hulls,
    one_box,
    points_in_boxes,
    rows_of_one_value,
    tile_sides,
)
from dbt_recluster.key.curve import Curve

IntArray = np.ndarray
# Bits of each column, so that all cells of the grid can be looked at.
BITS = {2: 4, 3: 3, 4: 2}


class Rows(NamedTuple):
    """Rows as ranks, a share of each, and the parts of a column."""

    points: Points
    share: IntArray
    parts: int

    def cut(self, limit: float, per_block: float) -> BoxTree:
        return cut_into_boxes(self.points, limit, self.parts, per_block)


def ranked(columns: list[list[int]], bits: int, seed: int = 0) -> Rows:
    """Rows of values, each column of which is cut into equal shares."""
    arrays = [pa.array(column, pa.int64()) for column in columns]
    curve = Curve.from_columns(arrays, bits=bits)
    points = Points.from_columns(curve, arrays, 1)
    share = np.random.default_rng(seed).integers(0, SHARES, len(points.rank))
    return Rows(points, share, curve.parts)


@st.composite
def rows(draw: st.DrawFn, most: int = 60) -> Rows:
    """Few values a column repeat, and then fill several parts."""
    dimensions = draw(st.sampled_from(sorted(BITS)))
    size = draw(st.integers(1, most))
    values = [
        st.integers(0, draw(st.sampled_from([0, 1, 3, 20, 1_000]))) | st.just(draw(st.integers(0, 20)))  # a heavy value
        for _ in range(dimensions)
    ]
    columns = [draw(st.lists(of_column, min_size=size, max_size=size)) for of_column in values]
    return ranked(columns, BITS[dimensions], draw(st.integers(0, 99)))


PER_BLOCK = st.sampled_from([0.0, 0.1, 1.0, 10.0])
any_rows = given(rows(), st.integers(1, 20), PER_BLOCK)


def shared_boxes(tree: BoxTree) -> list[list[int]]:
    """Boxes that share the rows of equal ranks, by families; a box that does not is its own."""

    def below(node: int) -> list[int]:
        return [-1 - node] if node < 0 else [box for child in tree.child[node] for box in below(int(child))]

    shares = [node for node, column in enumerate(tree.column.tolist()) if column == SHARE]
    inner = {int(child) for node in shares for child in tree.child[node]}
    families = [below(node) for node in shares if node not in inner]
    in_families = set(itertools.chain(*families))
    return families + [[box] for box in range(len(tree)) if box not in in_families]


def is_inside(rank: IntArray, lower: IntArray, upper: IntArray) -> np.ndarray:
    """Whether each of m rows lies in each of n boxes: bool (m, n)."""
    inside: np.ndarray = ((rank[:, None] >= lower) & (rank[:, None] <= upper)).all(axis=2)
    return inside


@any_rows
def test_each_row_lies_in_the_one_region_that_its_ranks_and_share_lead_to(
    table: Rows, limit: int, per_block: float
) -> None:
    """Regions are disjoint and cover every cell: a row that comes has a box, sampled or not, and always the same."""
    tree = table.cut(limit, per_block)
    lower, upper = tree.regions(table.parts)
    assert (lower <= upper).all()
    inside = is_inside(table.points.rank, lower, upper)
    families = shared_boxes(tree)
    family = {member: sorted(members) for members in families for member in members}
    for row, of_row in enumerate(tree.box_of(table.points.rank, table.share).tolist()):
        assert np.flatnonzero(inside[row]).tolist() == family[of_row]
        # Within a family, boxes follow one another by shares of equal size.
        members = family[of_row]
        assert members.index(of_row) == sum(
            int(table.share[row]) >= SHARES * number // len(members) for number in range(1, len(members))
        )
    for members in families:
        for ends in (lower, upper):
            assert (ends[members] == ends[members[0]]).all()
    cells = np.array(list(itertools.product(range(table.parts), repeat=lower.shape[1])))
    first_of_family = sorted(map(min, families))
    assert (is_inside(cells, lower[first_of_family], upper[first_of_family]).sum(axis=1) == 1).all()
    box = tree.box_of(cells, np.zeros(len(cells), np.int64))
    assert set(box.tolist()) == set(first_of_family)
    again = table.cut(limit, per_block)
    assert (again.box_of(cells, np.zeros(len(cells), np.int64)) == box).all()


@any_rows
@example(ranked([[1] * 50, [1] * 50], 4), 20, 0.1)
def test_boxes_hold_at_most_the_limit_and_are_the_hulls_of_their_rows(
    table: Rows, limit: int, per_block: float
) -> None:
    tree = table.cut(limit, per_block)
    box = tree.box_of(table.points.rank, table.share)
    for members in shared_boxes(tree):
        own = np.isin(box, members)
        assert own.any()
        for member in members:
            assert tree.lower[member].tolist() == table.points.lower[own].min(axis=0).tolist()
            assert tree.upper[member].tolist() == table.points.rank[own].max(axis=0).tolist()
        if len(members) == 1:
            assert own.sum() <= limit
        else:
            # Only rows that no cut tells apart are shared, by as few boxes as may hold them by chance.
            assert len(np.unique(table.points.rank[own], axis=0)) == 1
            assert own.sum() > limit
            assert len(members) == np.ceil(own.sum() / rows_of_one_value(limit))


@given(st.integers(1, 400), st.floats(1, 200))
def test_shares_of_equal_rows_keep_a_distance_from_the_limit(count: int, limit: float) -> None:
    most = rows_of_one_value(limit)
    assert 0 < most <= limit
    # Four standard deviations of a part of that size, where these leave anything.
    assert most == pytest.approx(1) or most + 4 * most**0.5 <= limit * (1 + 1e-9)
    table = ranked([[7] * count, [3] * count], 4)
    tree = table.cut(limit, 0.1)
    assert len(tree) == (1 if count <= limit else np.ceil(count / most))


@given(rows(), PER_BLOCK)
def test_rows_that_fit_are_cut_only_if_that_pays(table: Rows, per_block: float) -> None:
    """A block more costs ``per_block``, so what boxes cost never rises by a cut."""
    size = len(table.points.rows)
    tree = table.cut(size, per_block)
    least = table.points.lower.min(axis=0)[None]
    whole = box_costs(least, table.points.rank.max(axis=0)[None], table.parts).sum() + per_block
    cost = box_costs(tree.lower, tree.upper, table.parts).sum() + per_block * len(tree)
    assert cost <= whole + 1e-9
    assert len(table.cut(size, 1e6)) == 1


def test_the_height_of_a_tree_is_limited() -> None:
    """Each step on it is one of Python's recursion, and one of the SQL that finds the box of a row."""
    values = np.minimum(np.random.default_rng(21).zipf(1.2, (5_000, 2)), 10**15)
    table = ranked(values.T.tolist(), 10)
    assert table.cut(3, 0.01).height <= 48  # 70 without the limit


def test_weights_of_rows_count() -> None:
    table = ranked([list(range(16)), list(range(16))], 4)

    def cut(weights: Any) -> BoxTree:
        return table._replace(points=table.points._replace(rows=np.broadcast_to(weights, 16))).cut(16, 10.0)

    assert (len(cut(1.0)), len(cut(4.0))) == (1, 4)
    alone = cut(np.where(np.arange(16) == 3, 16.0, 1.0))
    assert [box for box in alone.lower.tolist() if box[0] == 3] == [[3, 3]]


def test_few_late_rows_become_a_block_of_their_own() -> None:
    """Rows of a day come in order of another column; a few of them belong to earlier days."""
    random = np.random.default_rng(0)
    late = np.arange(1_000) < 20
    days = np.where(late, random.integers(0, 900, 1_000), random.integers(900, 1_000, 1_000))
    other = random.integers(0, 1_000, 1_000)
    points = Points(*[np.column_stack([days, other])] * 2, np.ones(1_000))
    tree = cut_into_boxes(points, 250, 1_000, 2 * 40**-0.5)
    assert len(tree) <= 7
    of_days = tree.lower[:, 0] >= 900
    # Without the cut, late rows would widen most of the blocks.
    assert of_days.sum() == len(tree) - 1
    assert tree.upper[~of_days, 0].max() < 930


def test_boxes_of_a_square_are_nearly_squares() -> None:
    random = np.random.default_rng(0)
    for dimensions in BITS:
        rank = random.integers(0, 1_024, (20_000, dimensions))
        points = Points(rank, rank, np.ones(len(rank)))
        tree = cut_into_boxes(points, 100, 1_024, 0.1)
        best = 200 * dimensions * 200 ** (-1 / dimensions)
        assert box_costs(tree.lower, tree.upper, 1_024).sum() <= 1.25 * best
        assert len(tree) <= 1.25 * 200


def naive_side(blocks: float, widths: list[float]) -> float:
    """The side of cubes of which so many fill a box: columns narrower than the side stay uncut."""
    low, high = 0.0, max(widths)
    for _ in range(200):
        side = (low + high) / 2
        count = np.prod([max(1.0, width / side) for width in widths])
        low, high = (side, high) if count > blocks else (low, side)
    return high


@given(
    st.integers(2, 4).flatmap(
        lambda columns: st.lists(
            st.tuples(st.floats(1, 10_000), *[st.floats(0.001, 1)] * columns), min_size=1, max_size=5
        )
    )
)
def test_tile_sides_are_those_of_the_naive_search(boxes: list[tuple[float, ...]]) -> None:
    blocks, widths = np.array(boxes)[:, 0], np.array(boxes)[:, 1:]
    sides = tile_sides(blocks, widths)
    for side, count, of_box in zip(sides.tolist(), blocks.tolist(), widths.tolist(), strict=True):
        # One block is the whole box, whatever the side.
        assert side == pytest.approx(naive_side(count, of_box), rel=1e-6) or (
            count == pytest.approx(1) and side >= max(of_box) * (1 - 1e-6)
        )


@st.composite
def coded_boxes(draw: st.DrawFn) -> tuple[IntArray, IntArray, IntArray]:
    """A code for each box, and its lower and upper ends."""
    ends = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted)
    boxes = draw(st.lists(st.tuples(st.integers(0, 4), ends, ends, ends), min_size=1, max_size=20))
    lower, upper = (np.array([[ends[side] for ends in box[1:]] for box in boxes]) for side in (0, 1))
    return np.array([box[0] for box in boxes]), lower, upper


@given(coded_boxes())
def test_hulls_and_costs_are_those_of_each_box(boxes: tuple[IntArray, IntArray, IntArray]) -> None:
    codes, lower, upper = boxes
    _, code = np.unique(codes, return_inverse=True)
    least, greatest = hulls(code, lower, upper)
    for number in range(int(code.max()) + 1):
        assert least[number].tolist() == lower[code == number].min(axis=0).tolist()
        assert greatest[number].tolist() == upper[code == number].max(axis=0).tolist()
    assert box_costs(lower, upper, 10) == pytest.approx(((upper - lower + 1) / 10).sum(axis=1))


@given(coded_boxes(), st.integers(1, 40), st.data())
def test_points_lie_in_their_boxes_and_stand_for_their_rows(
    boxes: tuple[IntArray, IntArray, IntArray], count: int, data: st.DataObject
) -> None:
    codes, lower, upper = boxes
    sides = zip(lower.flat, upper.flat, strict=True)
    rank = np.array([data.draw(st.integers(*map(int, ends))) for ends in sides]).reshape(lower.shape)
    points = points_in_boxes(lower, rank, upper, codes + 1, count)
    of_box = np.repeat(np.arange(len(codes)), count)
    assert (points.rank >= rank[of_box]).all()
    assert (points.rank <= upper[of_box]).all()
    assert np.bincount(of_box, points.rows) == pytest.approx(codes + 1)
    # A box of one value covers all parts that this fills; within others, a row covers its own part.
    is_one = rank[of_box] == upper[of_box]
    assert (points.lower == np.where(is_one, lower[of_box], points.rank)).all()


def test_a_tree_without_cuts_is_one_box() -> None:
    tree = one_box(3, 8)
    assert (len(tree), tree.height) == (1, 0)
    assert [ends.tolist() for ends in tree.regions(8)] == [[[0] * 3], [[7] * 3]]
    assert tree.box_of(np.arange(24).reshape(-1, 3) % 8, np.arange(8)).tolist() == [0] * 8
