"""The boundaries of a curve: drawn from a sample of rows, and kept in a property of the table for each column.

Any value between two parts cuts there as well as another. So the shortest one is kept: the number with most trailing
zero bits, the shortest prefix. What is lost, malformed or of another key or type counts as not recorded, which costs
work and never rows.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dbt_recluster import table_properties
from dbt_recluster.cluster_key import ClusterKey, KeyField
from dbt_recluster.curve import BITS, Curve
from dbt_recluster.transforms import EXACT

if TYPE_CHECKING:
    from dbt_recluster.iceberg.iceberg_table import IcebergTable

# Characters of a property; a Hive metastore may hold 4,000.
LONGEST = 3_900
_SAMPLE_ROWS = 50_000
# Bytes of a property that was tampered with, unpacked.
_MOST_UNPACKED = 1 << 22
_COUNT = (1 << BITS) - 1
_TYPES = {
    str(kind): kind
    for kind in (
        pa.bool_(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.date32(),
        pa.string(),
        pa.binary(),
    )
}


def sampled_curve(table: IcebergTable, key: ClusterKey, rows: int) -> Curve | None:
    """Draw boundaries from a sample of rows, or return None if there are none.

    Args:
        table: The table.
        key: A key with a curve, checked.
        rows: Rows of the table.
    """
    if not rows:
        return None
    sample = table.sample([field.column for field in key.on_curve], rows, _SAMPLE_ROWS)
    columns = [
        field.transform.values(_decodable(sample.column(f"column_{number}").combine_chunks()))
        for number, field in enumerate(key.on_curve)
    ]
    return Curve.of(columns)


def _decodable(column: pa.Array) -> pa.Array:
    """Return a column with NULL for text that is not UTF-8: no property can hold it."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array(map(_text, column.cast(pa.binary()).to_pylist()), column.type)
    return column


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def as_properties(key: ClusterKey, curve: Curve) -> dict[str, str]:
    """Return the properties that record a curve."""
    return {
        _name(field): _encoded(field, boundaries)
        for field, boundaries in zip(key.on_curve, curve.boundaries, strict=True)
    }


def recorded_curve(properties: Mapping[str, str], key: ClusterKey) -> Curve | None:
    """Return the curve that properties record, or None if they do not record all of it."""
    boundaries = [_decoded(field, properties.get(_name(field), "")) for field in key.on_curve]
    known = [ends for ends in boundaries if ends is not None]
    return Curve(tuple(known)) if known and len(known) == len(boundaries) else None


def _name(field: KeyField) -> str:
    return f"{table_properties.CURVE_PREFIX}{field.column}"


def _encoded(field: KeyField, boundaries: pa.Array) -> str:
    """Return the text of boundaries, as exactly as it fits into `LONGEST` characters."""
    kind = boundaries.type
    pack = _packed_texts if pa.types.is_string(kind) or pa.types.is_binary(kind) else _packed_numbers
    for bits in range(BITS, 0, -1):
        # Boundaries that repeat take no room; then parts are fewer.
        step = 1 << (BITS - bits)
        kept = np.maximum((np.arange(_COUNT) + 1) // step * step - 1, step - 1)
        for extra in (2, 0):
            data = zlib.compress(pack(boundaries.take(pa.array(kept)), extra), 9)
            text = json.dumps(
                {"item": str(field), "type": str(kind), "boundaries": base64.b64encode(data).decode()}
            )
            if len(text) <= LONGEST:
                return text
    return json.dumps({"item": str(field), "type": str(kind)})


def _decoded(field: KeyField, text: str) -> pa.Array | None:
    try:
        recorded = json.loads(text)
        if recorded["item"] != str(field):
            return None
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(recorded["boundaries"], validate=True), _MOST_UNPACKED)
        kind = _TYPES.get(recorded["type"]) or _decimal_type(recorded["type"])
        unpack = (
            _unpacked_texts if pa.types.is_string(kind) or pa.types.is_binary(kind) else _unpacked_numbers
        )
        boundaries = unpack(data, kind)
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        IndexError,
        OverflowError,
        RecursionError,
        zlib.error,
    ):
        return None
    except (binascii.Error, ArithmeticError, pa.ArrowException):
        return None
    return boundaries if len(boundaries) == _COUNT else None


def _decimal_type(text: str) -> pa.DataType:
    kind, _, numbers = text.removesuffix(")").partition("(")
    precision, scale = map(int, numbers.split(","))
    # Truncated decimals have more digits than others.
    return (pa.decimal256 if kind == "decimal256" else pa.decimal128)(precision, scale)


def _packed_numbers(boundaries: pa.Array, extra: int) -> bytes:
    """Pack boundaries as whole numbers: the differences of the shortest, without the zero bits that all end in.

    A number may move by an eighth of the parts beside it, by less with more `extra`.
    """
    numbers = _as_integers(boundaries)
    share = 8 << 2 * extra
    ends = []
    for before, number, after in zip(
        [numbers[0], *numbers], numbers, [*numbers[1:], numbers[-1]], strict=False
    ):
        low, high = number - (number - before) // share, number + (after - number) // share
        zeros = max((low ^ high).bit_length() - 1, 0)
        ends.append((high >> zeros) << zeros if low < high else number)
    common = 0
    for end in ends:
        common |= end
    zeros = (common & -common).bit_length() - 1 if common else 0
    steps = [ends[0] >> zeros, *((after - before) >> zeros for before, after in pairwise(ends))]
    return bytes([zeros]) + b"".join(map(_varint, [abs(steps[0]) * 2 + (steps[0] < 0), *steps[1:]]))


def _unpacked_numbers(data: bytes, kind: pa.DataType) -> pa.Array:
    zeros, (first, *steps) = data[0], _varints(data[1:])
    first = -(first >> 1) if first & 1 else first >> 1
    return _of_integers([number << zeros for number in accumulate([first, *steps])], kind)


def _packed_texts(boundaries: pa.Array, extra: int) -> bytes:
    """Pack boundaries as prefixes, each as what it adds to the start of the one before.

    A prefix is long enough to lie above the boundary before, by `extra` characters longer.
    """
    ends: list[Any] = []
    before: Any = None
    for value in boundaries.to_pylist():
        shared = -1 if before is None else _shared(before, value)
        ends.append(value[: shared + 1 + extra] if value != before else ends[-1])
        before = value
    data, last = b"", b""
    for end in (end.encode() if isinstance(end, str) else end for end in ends):
        shared = _shared(last, end)
        data += _varint(shared) + _varint(len(end) - shared) + end[shared:]
        last = end
    return data


def _unpacked_texts(data: bytes, kind: pa.DataType) -> pa.Array:
    ends, last, at = [], b"", 0
    while at < len(data):
        shared, at = _varint_at(data, at)
        length, at = _varint_at(data, at)
        last = last[:shared] + data[at : at + length]
        at += length
        ends.append(last)
    if sorted(ends) != ends or len(ends) != _COUNT:
        raise ValueError("boundaries ascend")
    return pa.array([end.decode() if pa.types.is_string(kind) else end for end in ends], kind)


def _shared(left: Any, right: Any) -> int:
    """Return how many characters, or bytes, two values have in common at their start."""
    differing: Iterator[int] = (n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b)
    return next(differing, min(len(left), len(right)))


def _as_integers(values: pa.Array) -> list[int]:
    """Return values as whole numbers in the same order."""
    kind = values.type
    if pa.types.is_decimal(kind):
        return [int(value.scaleb(kind.scale, EXACT)) for value in values.to_pylist()]
    if pa.types.is_floating(kind):
        return list(map(_of_float(kind), (values.to_numpy() + 0.0).view(_bits(kind)).tolist()))
    return [int(number) for number in values.cast(_plain(kind)).to_pylist()]


def _of_integers(numbers: Sequence[int], kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind):
        return pa.array([Decimal(number).scaleb(-kind.scale, EXACT) for number in numbers], kind)
    if pa.types.is_floating(kind):
        bits = np.array(list(map(_of_float(kind), numbers)), _bits(kind))
        return pa.array(bits.view(np.float32 if kind == pa.float32() else np.float64), kind)
    return pa.array(numbers, _plain(kind)).cast(kind)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_boolean(kind):
        return pa.int8()
    return pa.int32() if pa.types.is_date32(kind) else kind


def _bits(kind: pa.DataType) -> type[np.signedinteger[Any]]:
    return np.int32 if kind == pa.float32() else np.int64


def _of_float(kind: pa.DataType) -> Callable[[int], int]:
    """Return the function between the bits of numbers and whole numbers in their order; it is its own inverse."""
    magnitude = (1 << (31 if kind == pa.float32() else 63)) - 1
    return lambda bits: bits if bits >= 0 else bits ^ magnitude


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes([*data, number])


def _varint_at(data: bytes, at: int) -> tuple[int, int]:
    number, shift = 0, 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        number, at = _varint_at(data, at)
        yield number
