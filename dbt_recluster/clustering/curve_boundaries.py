"""The curve of a table, whose boundaries are kept in a property for each column.

Any value between two parts cuts there as well as another. So the shortest one is kept: the number with most trailing
zero bits, the shortest prefix. What is lost, malformed or of another key or type counts as not recorded, which costs
work and never rows.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from io import BytesIO
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dbt_recluster import table_properties
from dbt_recluster.cluster_key import ClusterKey, KeyField
from dbt_recluster.curve import BITS, Curve
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata
from dbt_recluster.planner.curves import CurveBlocks, curve_of_bounds
from dbt_recluster.transforms import EXACT

# Characters of a property; a Hive metastore may hold 4,000.
LONGEST = 3_900
# Bytes of a property that was tampered with, unpacked.
_MOST_UNPACKED = 1 << 22
# Bits of a number in one: a decimal has 256, and one for its sign.
_MOST_BITS = 260
_COUNT = (1 << BITS) - 1
_ALIASES = ("bool", "int32", "int64", "float", "double", "date32", "string", "binary")
_TYPES = {str(kind): kind for kind in map(pa.type_for_alias, _ALIASES)}
# The whole numbers that stand for values of a type.
_STORED = {
    pa.bool_(): pa.int8(),
    pa.date32(): pa.int32(),
    pa.float32(): pa.int32(),
    pa.float64(): pa.int64(),
}


def curve_blocks(key: ClusterKey, curve: Curve | None, blocks: BlockMetadata) -> CurveBlocks:
    """Return blocks under a key with a curve; one that is None, or of other types, is drawn from their bounds."""
    if curve is None or not is_curve_of(curve, key, blocks):
        own = slice(len(key.leading), None)
        curve = curve_of_bounds(blocks.lower[own], blocks.upper[own], blocks.unbounded[own], blocks.rows)
    return CurveBlocks(curve, blocks.lower, blocks.upper, blocks.unbounded, blocks.rows, blocks.partition)


def is_curve_of(curve: Curve, key: ClusterKey, blocks: BlockMetadata) -> bool:
    """Whether the boundaries of a curve are of the types that the blocks' bounds have."""
    types = [column.type for column in blocks.lower[len(key.leading) :]]
    return [ends.type for ends in curve.boundaries] == types


def curve_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return those of a table's properties that record curves."""
    return {name: text for name, text in properties.items() if name.startswith(table_properties.CURVE_PREFIX)}


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
    facts = {"item": str(field), "type": str(boundaries.type)}
    pack = _packed_texts if _is_text(boundaries.type) else _packed_numbers
    for bits in range(BITS, 0, -1):
        # Boundaries that repeat take no room; then parts are fewer.
        step = 1 << (BITS - bits)
        kept = np.maximum((np.arange(_COUNT) + 1) // step * step - 1, step - 1)
        for extra in (2, 0):
            data = zlib.compress(pack(boundaries.take(pa.array(kept)), extra), 9)
            text = json.dumps({**facts, "boundaries": base64.b64encode(data).decode()})
            if len(text) <= LONGEST:
                return text
    return json.dumps(facts)


def _decoded(field: KeyField, text: str) -> pa.Array | None:
    try:
        recorded = json.loads(text)
        if recorded["item"] != str(field):
            return None
        compressed = base64.b64decode(recorded["boundaries"], validate=True)
        data = BytesIO(zlib.decompressobj().decompress(compressed, _MOST_UNPACKED))
        kind = _TYPES.get(recorded["type"]) or _decimal_type(recorded["type"])
        boundaries = _unpacked_texts(data, kind) if _is_text(kind) else _unpacked_numbers(data, kind)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        return None
    except (zlib.error, pa.ArrowException):
        return None
    return None if data.read() else boundaries


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


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


def _unpacked_numbers(data: BytesIO, kind: pa.DataType) -> pa.Array:
    (zeros,) = data.read(1)
    first, *steps = (_read_varint(data) for _ in range(_COUNT))
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


def _unpacked_texts(data: BytesIO, kind: pa.DataType) -> pa.Array:
    ends, last = [], b""
    for _ in range(_COUNT):
        shared, length = _read_varint(data), _read_varint(data)
        last = last[:shared] + data.read(length)
        ends.append(last)
    if sorted(ends) != ends:
        raise ValueError("boundaries ascend")
    return pa.array([end.decode() if pa.types.is_string(kind) else end for end in ends], kind)


def _shared(left: Any, right: Any) -> int:
    """Return how many characters, or bytes, two values have in common at their start."""
    differing = (n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b)
    return next(differing, min(len(left), len(right)))


def _as_integers(values: pa.Array) -> list[int]:
    """Return values as whole numbers in the same order."""
    kind = values.type
    if pa.types.is_decimal(kind):
        return [int(value.scaleb(kind.scale, EXACT)) for value in values.to_pylist()]
    stored = _STORED.get(kind, kind)
    if pa.types.is_floating(kind):
        return list(_in_order((values.to_numpy() + 0.0).view(stored.to_pandas_dtype())).tolist())
    return list(values.cast(stored).to_pylist())


def _of_integers(numbers: Sequence[int], kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind):
        return pa.array([Decimal(number).scaleb(-kind.scale, EXACT) for number in numbers], kind)
    stored = _STORED.get(kind, kind)
    if pa.types.is_floating(kind):
        return pa.array(_in_order(np.array(numbers, stored.to_pandas_dtype()))).view(kind)
    return pa.array(numbers, stored).cast(kind)


def _in_order(bits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the bits of numbers as whole numbers in their order, or these as the bits."""
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes([*data, number])


def _read_varint(data: BytesIO) -> int:
    number = 0
    for shift in range(0, _MOST_BITS, 7):
        (byte,) = data.read(1)
        number |= (byte & 127) << shift
        if byte < 128:
            return number
    raise ValueError("no boundary is that large")
