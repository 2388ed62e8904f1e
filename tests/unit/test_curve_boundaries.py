"""Boundaries of a curve as properties of a table."""

import base64
import json
import string
import uuid
import zlib
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nightly import examples

from dbt_recluster.clustering.table_curve import as_properties, recorded_curve
from dbt_recluster.exceptions import ClusterKeyError
from dbt_recluster.iceberg.rewrite.sample import LONGEST_TEXT
from dbt_recluster.iceberg.table_properties import CURVE_PREFIX
from dbt_recluster.key.cluster_key import parse_cluster_key
from dbt_recluster.key.curve import Curve

KEY = parse_cluster_key("hilbert(a, b)")
IDS = {"a": 1, "b": 2}
RANDOM = np.random.default_rng(0)
ROWS = 20_000


def texts(count: int, begin: str = "") -> list[str]:
    return [begin + str(uuid.UUID(bytes=RANDOM.bytes(16))) for _ in range(count)]


MOST = Decimal("9" * 36 + ".99")
SAMPLES: dict[str, pa.Array] = {
    "bigint": pa.array(RANDOM.integers(-(1 << 63), (1 << 63) - 1, ROWS)),
    "bigint, few": pa.array(RANDOM.integers(0, 3, ROWS)),
    "bigint, skewed": pa.array(np.minimum(RANDOM.zipf(1.3, ROWS), 1 << 40)),
    "int": pa.array(RANDOM.integers(-1000, 1000, ROWS), pa.int32()),
    "date": pa.array(RANDOM.integers(8_036, 10_562, ROWS), pa.int32()).cast(pa.date32()),
    "double": pa.array(RANDOM.normal(size=ROWS)),
    "float": pa.array(RANDOM.normal(size=ROWS).astype(np.float32)),
    "decimal": pa.array([Decimal(int(n)) / 100 for n in RANDOM.integers(-(10**9), 10**9, ROWS)], pa.decimal128(38, 2)),
    "decimal, truncated": pa.array(
        [Decimal(int(n)) for n in RANDOM.integers(-(10**9), 10**9, ROWS)], pa.decimal256(40, 0)
    ),
    "boolean": pa.array(RANDOM.integers(0, 2, ROWS).astype(bool)),
    "text": pa.array(texts(ROWS)),
    "text that begins alike": pa.array(texts(ROWS, "x" * 1_000)),
    "text of one letter": pa.array(["x" * int(n) for n in RANDOM.integers(0, 3_000, ROWS)]),
    "text beyond ASCII": pa.array(["".join(map(chr, RANDOM.integers(0x4E00, 0x9FFF, 20))) for _ in range(ROWS)]),
    "nothing but NULL": pa.array([None] * 10, pa.decimal128(10, 2)),
    "binary": pa.array([RANDOM.bytes(16) for _ in range(ROWS)]),
    "one value": pa.array([20_454] * 1_000, pa.int32()).cast(pa.date32()),
    "two values": pa.array([1_000_003, 1_000_007] * 500, pa.int32()),
    "few texts": pa.array(["new", "open"] * 200 + ["shipped"] * 600),
    "few binaries": pa.array([b"\x01", b"\xff\x01\x02"] * 500),
    "few decimals": pa.array([Decimal("1.25"), Decimal("7.77")] * 500, pa.decimal128(9, 2)),
    "decimals of 38 digits": pa.array([Decimal("1234567890123456789012345678901234.56"), -MOST, MOST]),
    "doubles without end": pa.array([*RANDOM.normal(size=600).tolist(), *[-np.inf, np.inf] * 200]),
    "floats without end": pa.array([*[-np.inf, np.inf] * 200, *range(600)], pa.float32()),
    "a double that is the greatest": pa.array([*RANDOM.random(600).tolist(), *[99.99] * 400]),
}


def curve_of(*columns: pa.Array) -> Curve:
    return Curve.from_columns(columns)


INT_AND_TEXT = as_properties(KEY, curve_of(SAMPLES["int"], SAMPLES["text"]), IDS)


def read_back(drawn: Curve, **changes: object) -> Curve | None:
    """What a table records of a curve; ``changes`` are made to the property of the first column."""
    properties = as_properties(KEY, drawn, IDS)
    recorded = json.loads(properties["recluster.curve.a"]) | changes
    return recorded_curve({**properties, "recluster.curve.a": json.dumps(recorded)}, KEY)


@pytest.mark.parametrize("kind", SAMPLES)
def test_boundaries_come_back_and_cut_into_nearly_equal_shares(kind: str) -> None:
    sample = SAMPLES[kind]
    drawn = curve_of(sample, sample)
    properties = as_properties(KEY, drawn, IDS)
    assert max(map(len, properties.values())) <= CURVE_PREFIX.longest
    recorded = recorded_curve(properties, KEY)
    assert recorded is not None
    assert recorded.boundaries[0].type == sample.type
    (before, _), (after, _) = drawn.ranks([sample, sample]), recorded.ranks([sample, sample])
    shares, exact = (np.bincount(rank >> 4, minlength=64) for rank in (after, before))
    assert shares.max() <= 1.5 * exact.max()
    # No row of the sample lies beyond what is recorded.
    beyond, _ = recorded.beyond([sample, sample])
    assert beyond.mean() < 0.002


@pytest.mark.parametrize("kind", ["doubles without end", "floats without end"])
def test_a_boundary_of_negative_infinity_comes_back(kind: str) -> None:
    recorded = read_back(curve_of(SAMPLES[kind], SAMPLES[kind]))
    assert recorded is not None
    ends = recorded.boundaries[0].to_numpy()
    assert (ends[0], ends[-1], np.isnan(ends).any()) == (-np.inf, np.inf, False)


@pytest.mark.parametrize(
    "tampered",
    [
        *("", "{}", "[]", "null", "1", "[" * 10_000, '{"item": "a"}'),
        '{"item": "a", "type": "int64", "shortened": "eJw="}',
        '{"item": "a", "type": "geometry", "shortened": "eJwDAAAAAAE="}',
        '{"item": "a", "type": 1, "shortened": 2}',
    ],
)
def test_what_is_tampered_with_counts_as_not_recorded(tampered: str) -> None:
    assert recorded_curve({**INT_AND_TEXT, "recluster.curve.a": tampered}, KEY) is None
    assert recorded_curve({"recluster.curve.b": INT_AND_TEXT["recluster.curve.b"]}, KEY) is None


def test_a_number_without_end_is_no_boundary() -> None:
    packed = json.dumps([[0] * 1_023, ["f" * (1 << 22)] + [""] * 1_022])
    endless = base64.b64encode(zlib.compress(packed.encode())).decode()
    assert read_back(curve_of(SAMPLES["int"], SAMPLES["text"]), shortened=endless) is None


@settings(max_examples=examples(200))
@given(st.sampled_from(["int", "text", "double", "decimal"]), st.data())
def test_no_change_to_a_property_is_an_error(kind: str, data: st.DataObject) -> None:
    sample = SAMPLES[kind][:2_000]
    drawn = curve_of(sample, sample)
    text = json.loads(as_properties(KEY, drawn, IDS)["recluster.curve.a"])["shortened"]
    at, gone = data.draw(st.integers(0, len(text) - 1)), data.draw(st.integers(0, 2))
    letter = data.draw(st.sampled_from(string.ascii_letters))
    curve = read_back(drawn, shortened=text[:at] + letter + text[at + gone :])
    if curve is not None:
        ends = curve.boundaries[0].to_pylist()
        assert ends == sorted(ends)


def test_boundaries_of_another_transform_or_type_are_not_those_of_the_key() -> None:
    keys = [parse_cluster_key(f"hilbert({item}, b)") for item in ("days(a)", "hours(a)", "a")]
    properties = as_properties(keys[0], curve_of(SAMPLES["int"], SAMPLES["int"]), IDS)
    assert [recorded_curve(properties, key) is not None for key in keys] == [True, False, False]


def test_how_loads_ascend_and_the_newest_of_them_come_back() -> None:
    drawn = replace(curve_of(SAMPLES["int"], SAMPLES["date"]), ascending=(False, True), newest=1 << 40)
    recorded = read_back(drawn)
    assert recorded is not None
    assert (recorded.ascending, recorded.newest) == ((False, True), 1 << 40)
    assert read_back(drawn, newest="x") is None


@pytest.mark.parametrize(
    ("key", "ids", "types"),
    [
        ("hilbert(c, b)", {"c": 1, "b": 2}, [pa.int32(), pa.date32()]),  # a was renamed
        ("hilbert(c, b)", None, None),
        ("hilbert(a, b)", {"a": 3, "b": 2}, None),  # another column has taken the name
        ("hilbert(a, b)", {"a": 2, "b": 1}, [pa.date32(), pa.int32()]),  # two have changed names
    ],
)
def test_boundaries_follow_the_id_of_a_column(key: str, ids: dict[str, int] | None, types: object) -> None:
    properties = as_properties(KEY, curve_of(SAMPLES["int"], SAMPLES["date"]), IDS)
    curve = recorded_curve(properties, parse_cluster_key(key), ids)
    assert (curve and [ends.type for ends in curve.boundaries]) == types


@pytest.mark.parametrize("letter", ["x", b"x"])
def test_long_texts_that_begin_alike_are_refused(letter: str | bytes) -> None:
    alike = pa.array([letter * (LONGEST_TEXT + 1)] * ROWS)
    with pytest.raises(ClusterKeyError, match=r"of b are longer than 1,024 characters and begin alike"):
        as_properties(KEY, curve_of(SAMPLES["int"], alike), IDS)
    # A boundary of that length that is the only one of its kind tells values apart.
    few = pa.array([letter * 10] * ROWS + [letter * (LONGEST_TEXT + 1)] * (ROWS // 1_000))
    for sample in (few, pa.array([letter * LONGEST_TEXT] * ROWS)):
        assert read_back(curve_of(SAMPLES["int"], sample)) is not None
