"""Blocks that merges along a curve have written in vain, and what wakes them."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dbt_recluster.clustering.checkpoint import SettledBlocks
from dbt_recluster.iceberg.metadata.block_metadata import BlockMetadata
from dbt_recluster.planner import Blocks, Plan, Policy
from dbt_recluster.planner.merges import BlockSet

RULES = "as they were"


def rest_of(paths: str, recorded: str | None, rules: str = RULES) -> SettledBlocks:
    """The rest of blocks that all overlap, in two partitions: a to c, written by commits 1 to 3, and x to z by 7."""
    partition = np.array([int(path >= "x") for path in paths])
    commits = np.array([ord(path) - ord("a") + 1 if path < "x" else 7 for path in paths])
    size, ends = len(paths), pa.array(range(len(paths)))
    none = np.zeros(size, np.int64)
    metadata = BlockMetadata(
        1,
        pa.array(list(paths)),
        partition,
        none,
        none + 10,
        none + 100,
        commits,
        commits,
        none,
        [ends],
        [ends],
        [],
    )
    blocks = Blocks.build([0] * size, [9] * size, rows=[10] * size, bytes=[100] * size, partition=partition.tolist())
    return SettledBlocks(blocks, metadata, Policy(depth=1, block_rows=10), recorded, rules)


def merged(paths: str, written: str, replaced: str, commit: int, recorded: str | None = None) -> str:
    """What a commit records that merges blocks of the first partition."""
    place = np.flatnonzero([path in replaced for path in paths])
    block_set = BlockSet(place, 0, 0, 100, 2, 1, len(written), 1, 0, is_merge=True)
    planned = Plan((block_set,))
    found = rest_of(paths, recorded).after(planned, [(written, replaced)], [commit])
    assert found["recluster.settled"] is not None
    return found["recluster.settled"]


@pytest.mark.parametrize(
    ("paths", "rules", "settled"),
    [
        ("bcxy", RULES, "c"),
        ("zcb", RULES, "c"),  # another partition, and the order of blocks, do not matter
        ("bcdxy", RULES, ""),
        ("bxy", RULES, ""),
        ("cdxy", RULES, ""),
        ("bcxy", "new reads", ""),
    ],
)
def test_blocks_that_a_merge_left_as_deep_are_settled_until_others_come(paths: str, rules: str, settled: str) -> None:
    rest = rest_of(paths, merged("abxy", "bc", "ab", 3), rules)
    assert rest.mask.tolist() == [path in settled for path in paths]


@pytest.mark.parametrize(
    ("commits", "partitions"),
    [(1, {}), (["x"], {}), ([1], []), ([1], {"1": 2}), ([1], {"1": [2, "x"]}), (None, None)],
)
def test_a_damaged_record_counts_as_none(commits: Any, partitions: Any) -> None:
    record = {"commits": commits, "partitions": partitions}
    assert not rest_of("bcxy", json.dumps(record)).mask.any()


# 4e-7 is what is lost of the mean depth of 37 rows, for instance, in 6 decimals.
@pytest.mark.parametrize(("more", "settled"), [(1, False), (4e-7, True)])
def test_less_depth_than_before_the_merge_wakes_them_except_by_rounding(more: float, settled: bool) -> None:
    record = json.loads(merged("abxy", "bc", "ab", 3))
    partitions = record["partitions"].items()
    record["partitions"] = {name: [round(depth + more, 7), first] for name, (depth, first) in partitions}
    assert rest_of("bcxy", json.dumps(record)).mask.tolist() == [False, settled, False, False]


def test_the_record_of_other_files_stays_where_branches_share_it() -> None:
    of_main = merged("abxy", "bc", "ab", 3)
    other = rest_of("de", None, "of a branch")
    planned = Plan((BlockSet(np.arange(2), 0, 0, 100, 2, 1, 1, 1, 0, is_merge=True),))
    shared = other.after(planned, [("fg", "de")], [6, 7], of_main)["recluster.settled"]
    assert rest_of("bcxy", shared).mask.tolist() == [False, True, False, False]
    assert rest_of("fg", shared, "of a branch").mask.all()
    assert not rest_of("fg", shared).mask.any()
    alone = other.after(planned, [("fg", "de")], [6, 7])["recluster.settled"]
    assert not rest_of("bcxy", alone).mask.any()
