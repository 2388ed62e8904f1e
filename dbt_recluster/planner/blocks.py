"""Blocks: the description of a table's blocks that every metric and strategy reads.

Bounds are kept as ranks. All partitions share one axis of ranks, one after another, so that blocks of
different partitions never meet and no sweep has to know about partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbt_recluster.planner.arrays import BoolArray, IntArray, combined_ranks, dense_ranks
from dbt_recluster.planner.errors import BoundsError
from dbt_recluster.planner.ranks import Keys, length, rank_column
from dbt_recluster.planner.runs import extents_within_runs

# The smallest and greatest that may stand in a block's rows, bytes, level or run.
_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True, eq=False)
class Blocks:
    """The blocks of a table, one place in every array for each; make it with `Blocks.build`.

    Attributes:
        lower: ranks of the least cluster keys, int64 (n,).
        upper: ranks of the greatest cluster keys, int64 (n,), each at least its lower.
        points: number of ranks, that is, of distinct bounds counted in each partition by itself.
        rows: number of rows, int64 (n,), or None when they are not known.
        bytes: size in bytes, int64 (n,), or None when it is not known.
        level: how many times a block's rows have been reclustered, int64 (n,).
        run: int64 (n,), equal for blocks written together and disjoint by construction; 0 or less where that
            is not known.
        partition: codes from 0 in the partitions' own order, int64 (n,).
        unbounded: bool (n,), where an upper bound is missing or lies above every value.
        extent_lower: as `lower`, but blocks of one run made disjoint, for planning only; see
            `runs.extents_within_runs`.
        extent_upper: as `upper`, likewise; less than `extent_lower` for a block that its run leaves no
            extent.
    """

    lower: IntArray
    upper: IntArray
    points: int
    rows: IntArray | None
    bytes: IntArray | None
    level: IntArray
    run: IntArray
    partition: IntArray
    unbounded: BoolArray
    extent_lower: IntArray
    extent_upper: IntArray

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self.lower)

    @property
    def constant(self) -> BoolArray:
        """Where a block holds one single key, so that reclustering cannot narrow it: bool (n,)."""
        constant: BoolArray = self.lower == self.upper
        return constant

    @classmethod
    def build(
        cls,
        lower: Keys,
        upper: Keys,
        rows: Keys | None = None,
        bytes: Keys | None = None,
        level: Keys | None = None,
        run: Keys | None = None,
        partition: Keys | None = None,
        unbounded: Keys | None = None,
        between: tuple[Any, Any] | None = None,
    ) -> Blocks:
        """Describe n blocks by their bounds.

        Args:
            lower: least cluster key of each block: a list, NumPy array or Arrow array of length n; for a
                compound key a list of them, one for each key column. Tuples compare left to right, NULL
                (None) is less than everything, NaN more than every number.
            upper: greatest cluster key of each block, likewise.
            rows: rows in each block, int (n,). When None, planning takes every block for a full one.
            bytes: size of each block, int (n,).
            level: int (n,), 0 for blocks that were never reclustered, the default.
            run: int (n,). Blocks of one partition with the same positive number count as disjoint when
                planning, whatever their bounds say. 0, the default, or less: nothing is known.
            partition: one value for each block; blocks of different partitions are never compared.
            unbounded: bool (n,), or for a compound key a list of such masks, one for each key column: where
                the column's upper bound is not known or lies above every value. It is then greater than
                everything, and its given value is ignored. A block without any bounds has lower None and
                unbounded True: it spans its whole partition.
            between: least and greatest key of a range, for metrics under a predicate. Only blocks whose
                bounds meet the range are kept, and of each only the part within it. For a compound key each
                is a tuple, which may end early: ("a",) to ("a",) is all keys that begin with "a".

        Returns:
            The blocks, in the order given.

        Raises:
            BoundsError: lengths differ, keys cannot be compared, a count is negative, or some lower bound
                exceeds its upper.
        """
        lowers, uppers = _columns(lower), _columns(upper)
        if len(lowers) != len(uppers):
            raise BoundsError(f"lower has {len(lowers)} key columns, upper has {len(uppers)}")
        n = length(lowers[0])
        open_above = _masks(unbounded, n, len(lowers))
        if between is not None:
            kept, lower, upper = _clipped(lowers, uppers, open_above, between)
            # Ranks do as keys of what is left.
            return cls.build(
                lower,
                upper,
                rows=_only(_counts("rows", rows, n), kept),
                bytes=_only(_counts("bytes", bytes, n), kept),
                level=_only(_counts("level", level, n, least=-1), kept),
                partition=_partition_codes(partition, n)[0][kept],
            )
        partition_codes, partitions = _partition_codes(partition, n)
        run_codes = _counts("run", run, n, least=_INT64.min)
        run_codes = np.zeros(n, np.int64) if run_codes is None else run_codes

        codes, sizes = [np.concatenate([partition_codes, partition_codes])], [partitions]
        for low, high, mask in zip(lowers, uppers, open_above, strict=True):
            column, size = rank_column(low, high, mask)
            codes.append(column)
            sizes.append(size)
        ranks, points = (
            combined_ranks(codes[1:], sizes[1:]) if partitions <= 1 else combined_ranks(codes, sizes)
        )
        ranks_lower, ranks_upper = ranks[:n], ranks[n:]
        inverted = np.flatnonzero(ranks_lower > ranks_upper)
        if len(inverted):
            raise BoundsError(
                f"lower bound above upper in {len(inverted)} of {n} blocks, first at position {inverted[0]}; "
                "pass a block whose bounds are not known with lower None and unbounded True"
            )
        extent_lower, extent_upper = extents_within_runs(
            ranks_lower, ranks_upper, [(code[:n], code[n:]) for code in codes[1:]], partition_codes, run_codes
        )
        level_codes = _counts("level", level, n, least=-1)
        return cls(
            lower=ranks_lower,
            upper=ranks_upper,
            points=points,
            rows=_counts("rows", rows, n),
            bytes=_counts("bytes", bytes, n),
            level=np.zeros(n, np.int64) if level_codes is None else level_codes,
            run=run_codes,
            partition=partition_codes,
            unbounded=np.logical_or.reduce(open_above),
            extent_lower=extent_lower,
            extent_upper=extent_upper,
        )


def _clipped(
    lowers: list[Keys], uppers: list[Keys], open_above: list[BoolArray], between: tuple[Any, Any]
) -> tuple[BoolArray, IntArray, IntArray]:
    """Which blocks meet a range of keys, bool (n,), and the bounds of what of these lies in it, as ranks."""
    ends = [end if isinstance(end, tuple) else (end,) for end in between]
    if max(map(len, ends)) > len(lowers):
        raise BoundsError(f"between has keys of {max(map(len, ends))} columns, and there are {len(lowers)}")
    n, codes, sizes = len(open_above[0]), [], []
    for nth, (low, high, mask) in enumerate(zip(lowers, uppers, open_above, strict=True)):
        given = [end[nth] for end in ends if nth < len(end)]
        column, size = rank_column(low, high, mask, given)
        # A tuple that ends early stands for everything that may follow, from the least to the greatest.
        places = iter(column[2 * n :].tolist())
        end_codes = [
            next(places) if nth < len(end) else rest for end, rest in zip(ends, (0, size - 1), strict=True)
        ]
        codes.append(np.concatenate([column[: 2 * n], np.array(end_codes, np.int64)]))
        sizes.append(size)
    ranks, _ = combined_ranks(codes, sizes)
    lower, upper = ranks[:n], ranks[n : 2 * n]
    least, greatest = int(ranks[-2]), int(ranks[-1])
    if least > greatest:
        raise BoundsError(f"between ends below its start: {between[0]!r} to {between[1]!r}")
    kept = (lower <= greatest) & (upper >= least)
    return kept, np.maximum(lower, least)[kept], np.minimum(upper, greatest)[kept]


def _only(values: IntArray | None, kept: BoolArray) -> IntArray | None:
    return None if values is None else values[kept]


def _columns(keys: Keys) -> list[Keys]:
    """One entry for each key column: a list whose first item is itself a sequence is a compound key."""
    compound = isinstance(keys, list | tuple) and len(keys) > 0 and _is_column(keys[0])
    return list(keys) if compound else [keys]


def _is_column(item: Any) -> bool:
    return (
        isinstance(item, list | tuple | np.ndarray)
        or hasattr(item, "null_count")
        or hasattr(item, "to_numpy")
    )


def _masks(unbounded: Keys | None, n: int, columns: int) -> list[BoolArray]:
    if unbounded is None:
        return [np.zeros(n, np.bool_)] * columns
    given = _columns(unbounded)
    if len(given) != columns and len(given) > 1:
        raise BoundsError(f"unbounded has {len(given)} masks for {columns} key columns")
    masks = [_numpy(mask).astype(np.bool_) for mask in given]
    for mask in masks:
        if mask.shape != (n,):
            raise BoundsError(f"unbounded must have {n} values for each key column, not {mask.shape}")
    # One mask for a compound key: nothing is known of the whole upper tuple, and its first column decides.
    return masks if len(masks) == columns else masks * columns


def _partition_codes(partition: Keys | None, n: int) -> tuple[IntArray, int]:
    if partition is None:
        return np.zeros(n, np.int64), 1
    values = _numpy(partition)
    if len(values) != n:
        raise BoundsError(f"partition must have {n} values, not {len(values)}")
    if values.dtype.kind in "biu":
        codes, count = dense_ranks(values.astype(np.int64))
    else:
        # Any order will do, but it must not depend on the order of the blocks.
        objects = values.tolist()
        place = {
            value: code
            for code, value in enumerate(
                sorted(set(objects), key=lambda value: (str(type(value)), repr(value)))
            )
        }
        codes, count = np.fromiter(map(place.__getitem__, objects), np.int64, n), len(place)
    return codes, max(count, 1)


def _counts(name: str, values: Keys | None, n: int, least: int = 0) -> IntArray | None:
    if values is None:
        return None
    array = _numpy(values)
    if array.shape != (n,):
        raise BoundsError(f"{name} must have {n} values, not {array.shape}")
    if n and array.dtype.kind not in "biu":
        raise BoundsError(f"{name} must be whole numbers, not {array.dtype}")
    counts: IntArray = array.astype(np.int64)
    if n and int(counts.min()) < least:
        raise BoundsError(
            f"{name} must be at least {least}, and is {counts.min()} at position {counts.argmin()}"
        )
    return counts


def _numpy(values: Keys) -> Any:
    if isinstance(values, np.ndarray):
        return values
    if hasattr(values, "to_numpy"):
        return values.to_numpy() if not hasattr(values, "null_count") else np.asarray(values)
    if not isinstance(values, Sequence):
        raise BoundsError(f"expected a list, a NumPy array or an Arrow array, not {type(values).__name__}")
    objects = np.empty(len(values), np.object_)
    objects[:] = list(values)
    numbers = {type(value) for value in values} <= {bool, int, float, np.bool_, np.int64}
    return np.asarray(values) if numbers else objects
