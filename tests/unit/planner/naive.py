"""Naive twins of the planner's arithmetic: quadratic, straight from the definitions."""

import math
from decimal import ROUND_HALF_UP, Decimal


def key_order(value):
    """A Python sort key for one key column's value: NULL, values, NaN."""
    if value is None:
        return (0, 0)
    if isinstance(value, float) and math.isnan(value):
        return (2, 0)
    return (1, value)


def tuple_order(key):
    """A Python sort key for a compound key."""
    return tuple(key_order(part) for part in key) if isinstance(key, tuple) else key_order(key)


def overlaps(bounds):
    """Number of other intervals that intersect each closed interval."""
    return [
        sum(1 for j, (low, high) in enumerate(bounds) if i != j and low <= upper and lower <= high)
        for i, (lower, upper) in enumerate(bounds)
    ]


def point_depths(bounds):
    """{point: number of closed intervals that cover it} over all bounds."""
    points = {point for pair in bounds for point in pair}
    return {point: sum(1 for low, high in bounds if low <= point <= high) for point in points}


def depths(bounds):
    """Greatest point depth inside each closed interval."""
    at = point_depths(bounds)
    return [max(depth for point, depth in at.items() if low <= point <= high) for low, high in bounds]


def rounded(value):
    return float(Decimal(value).quantize(Decimal("0.0001"), ROUND_HALF_UP))


def mean(values):
    return rounded(Decimal(sum(values)) / Decimal(len(values))) if values else 0.0


def percentile(values, percent):
    """Percentile by nearest rank."""
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * percent / 100) - 1] if ordered else 0


def bucket(depth):
    if depth <= 16:
        return depth
    power = 16
    while power < depth:
        power *= 2
    return power


def key_read(blocks, row_group_bytes, is_sorted):
    """Bytes that a read of one key opens, of blocks (lower, upper, bytes, level)."""
    opened = []
    for lower, upper, size, level in blocks:
        groups = max(1, math.ceil(size / row_group_bytes))
        part = groups if lower == upper or (level == 0 and not is_sorted) else 1
        opened.append(math.ceil(size * part / groups))
    greatest = [
        max(
            sum(size for size, (low, high, *_) in zip(opened, blocks, strict=True) if low <= point <= high)
            for bounds in blocks
            for point in bounds[:2]
            if lower <= point <= upper
        )
        for lower, upper, *_ in blocks
    ]
    return round(sum(greatest) / len(blocks))


def information(bounds, constant):
    """Metrics that depend on bounds alone."""
    depth = depths(bounds)
    histogram = {}
    for d in depth:
        histogram[f"{bucket(d):05d}"] = histogram.get(f"{bucket(d):05d}", 0) + 1
    n = len(bounds)
    return {
        "total_block_count": n,
        "constant_block_count": sum(constant),
        "average_overlaps": mean(overlaps(bounds)),
        "average_depth": mean(depth),
        "p95_depth": percentile(depth, 95),
        "p99_depth": percentile(depth, 99),
        "max_depth": max(depth, default=0),
        "block_depth_histogram": dict(sorted(histogram.items())),
        "clustering_ratio": max(0.0, 100 * (1 - sum(map(math.log10, depth)) / n)) if n > 1 else 100.0,
    }


def widths(bounds):
    """Paragraph 100 of US patent 10,817,540: the members of a sequence that each interval overlaps, 1 for its members.

    Intervals come in the order of their greatest values, the shortest first. One is left out only if its least value is
    below the last greatest one; or if it is the same single value, which a sorted table has once.
    """
    sequence = []
    for low, high in sorted(bounds, key=lambda pair: (pair[1], pair[0] == pair[1], -pair[0])):
        if not sequence or (low >= sequence[-1][1] and (low, high) != sequence[-1]):
            sequence.append((low, high))
    return [
        1 if (low, high) in sequence else sum(low <= high_of and low_of <= high for low_of, high_of in sequence)
        for low, high in bounds
    ]


def width_sets(bounds, most):
    """Sets of strategy `width` down to depth 1, of at most so many intervals.

    Paragraph 82: buckets of widths are (1, most], (most, most**2] and so on, the widest first. Those of wider buckets
    that are in no set of this many intervals join the next one.
    """
    bucket = [min(power for power in range(99) if width <= most**power) for width in widths(bounds)]
    sets = []
    for least in reversed(range(max(bucket) + 1)):
        sets = [members for members in sets if len(members) == most]
        full = {i for members in sets for i in members}
        pool = sorted(set(range(len(bounds))) - full, key=lambda i: bounds[i])
        for chain in _chains(bounds, [i for i in pool if bucket[i] >= least]):
            for start in range(0, len(chain), most):
                sets += [part for part in _chains(bounds, chain[start : start + most]) if len(part) > 1]
    return [sorted(members) for members in sets]


def peak_sets(bounds, above_average):
    """Sets of the strategies of peaks: of the deepest points, or of those deeper than the mean over the bounds.

    The article "Snowflake auto clustering": AvgDepth is the sum of the depths of the points that overlap over their
    number, and every end is a point. A touch is no overlap.
    """
    spans = [_span(pair) for pair in bounds]
    ends = sorted({end for span in spans for end in span})
    depth = [sum(begin <= end <= last for begin, last in spans) for end in ends]
    of_bound = {}
    for (bound, _), value in zip(ends, depth, strict=True):
        of_bound[bound] = max(of_bound.get(bound, 0), value)
    shared = [value for value in of_bound.values() if value >= 2]
    bar = max(depth) - 1
    if above_average and shared:
        bar = min(bar, sum(shared) / len(shared))
    sets, left, peak = [], sorted(range(len(bounds)), key=lambda i: bounds[i]), []
    for end, value in [*zip(ends, depth, strict=True), (None, 0)]:
        if value > max(bar, 1):
            peak.append(end)
        elif peak:
            members = [i for i in left if any(spans[i][0] <= at <= spans[i][1] for at in peak)]
            sets += [chain for chain in _chains(bounds, members) if len(chain) > 1]
            left, peak = [i for i in left if i not in members], []
    return [sorted(members) for members in sorted(sets, key=lambda one: -_own_depth(bounds, one))]


def _span(pair):
    """Where an interval begins and ends, next to its bounds: one that ends where another begins shares nothing."""
    low, high = pair
    return ((low, low < high), (high, -(low < high)))


def _own_depth(bounds, members):
    spans = [_span(bounds[i]) for i in members]
    return max(sum(begin <= at <= end for begin, end in spans) for at, _ in spans)


def _chains(bounds, order):
    """Cut intervals, in the order of the key, where they leave a gap, which a touch does."""
    chains, reach = [], (-math.inf, 0)
    for i in order:
        begin, end = _span(bounds[i])
        if begin > reach:
            chains.append([])
        chains[-1].append(i)
        reach = max(reach, end)
    return chains
