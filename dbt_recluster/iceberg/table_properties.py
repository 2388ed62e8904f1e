"""The properties that dbt-recluster keeps in a table, each with its content and the cost of losing it; their codec."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

# Our properties of tables, and entries of summaries, begin with it.
PREFIX: Final = "recluster."
# A Hive metastore holds this many characters in a property, so a longer text is not ours.
_LONGEST: Final = 4_000
# The version of every format; a value without one has it.
_VERSION: Final = 1

PROPERTIES: Final[dict[str, TableProperty]] = {}
"""All properties by name."""


class TableProperty(str):
    """The name of a property, or the start of the names of several, which then ends in a dot.

    A property with state holds a JSON object. One that is damaged, too long or of a later version counts as lost.
    """

    holds: str
    lost: str  # the cost of losing it
    longest: int  # the most characters that are written

    def __new__(cls, name: str, holds: str, lost: str, longest: int = _LONGEST) -> TableProperty:
        """Declare a property."""
        declared = PROPERTIES[name] = super().__new__(cls, name)
        declared.holds, declared.lost, declared.longest = holds, lost, longest
        return declared

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Copy and pickle it as its name."""
        return str, (str(self),)

    def dump(self, value: Any) -> str:
        """Return the text of a value; the caller shortens one that is longer than `longest`."""
        return json.dumps(value, separators=(",", ":"))

    def load(self, text: str | None, read: Callable[[dict[str, Any]], T | None]) -> T | None:
        """Return ``read`` of the object in a text; None without a text, or if it is damaged."""
        if text is None or len(text) > _LONGEST:
            return None
        try:
            value = json.loads(text)
            return read(value) if value.get("version", _VERSION) == _VERSION else None
        except Exception:  # anybody may write anything into a property, and `read` need not expect it
            return None


CLUSTER_BY: Final[str] = TableProperty(
    "recluster.cluster_by",
    "The key set by the model, or any key with a curve. Its presence marks the sort order as ours; a curve counts as "
    "the key while the sort order has the columns before it.",
    "The sort order counts as set by hand: it stays when `cluster_by` goes. A curve is no longer known.",
)
SORT_ORDER: Final[str] = TableProperty(
    "recluster.sort_order",
    "The id of the sort order that a recluster by hand has set.",
    "`remove_clustering` leaves that sort order.",
)
OPTION_PREFIX: Final[str] = TableProperty(
    "recluster.option.",
    "An option of the model that differs from its default, each under its name in `meta.recluster`. The command and "
    "Python functions go by it.",
    "They go by the default, until the model is built again.",
)
LEVELS: Final = TableProperty(
    "recluster.levels",
    "The levels of the blocks, by the sequence numbers of the snapshots that wrote them; at most 3,900 characters.",
    "Blocks count as new, and are rewritten more often.",
    longest=3_900,
)
CURVE_PREFIX: Final = TableProperty(
    "recluster.curve.",
    "For each column of a curve, by its field id, the boundaries that cut it into equal shares of the rows, the newest "
    "load that they know, and whether loads ascend; at most 3,900 characters.",
    "They are drawn anew from a sample of the table.",
    longest=3_900,
)
SETTLED: Final = TableProperty(
    "recluster.settled",
    "Of a curve, for each partition: the depth before its last merge that lowered it, and the commits since; at most "
    "3,900 characters. Blocks of these commits are not merged among themselves.",
    "A merge that lowered nothing may be repeated once.",
    longest=3_900,
)
CHECKPOINT: Final = TableProperty(
    "recluster.checkpoint",
    "The snapshot up to which nothing is left to do, and the partitions where something is.",
    "The next check reads the metadata of the whole table.",
    longest=2_000,
)
CHANGES: Final = TableProperty(
    "recluster.changes",
    "Commits and rows that `recluster_after` has counted since the last recluster, and when that was.",
    "It counts from the snapshots that have not expired.",
)
READS: Final = TableProperty(
    "recluster.reads",
    "The ranges of columns that queries read, as `import_reads` has recorded them.",
    "Reads count as even until they are recorded again.",
    longest=3_500,
)
AUTO_DEPTH: Final = TableProperty(
    "recluster.auto_depth",
    "The threshold that `recluster_depth: auto` has chosen, and when.",
    "It is chosen anew.",
)
AUTO_KEY: Final = TableProperty(
    "recluster.auto_key",
    "That the model has `cluster_by: auto`; the rows and reads at the last comparison, and the last choices.",
    "The key stays as it is until the model is built again.",
)
SUSPENDED: Final = TableProperty(
    "recluster.suspended",
    "Since when the table is suspended, by whom, until when and why.",
    "The table is reclustered again.",
)
FAILURE: Final = TableProperty(
    "recluster.failure",
    "When the last attempt to recluster the table failed, and why; the next one that succeeds removes it.",
    "The table counts as failing only where its failure is met again.",
)
METRICS_PREFIX: Final[str] = TableProperty(
    "write.metadata.metrics.column.",
    "Iceberg's own, for each column of the key: `full`, so that bounds are whole. One that the table has stays.",
    "Bounds of long texts are cut off, and look wider than they are.",
)
ROW_GROUP_BYTES: Final[str] = TableProperty(
    "write.parquet.row-group-size-bytes",
    "Iceberg's own: 4 MB, or 128 KB for each column if there are more than 32. One that the table has stays.",
    "Iceberg's default of 128 MB: queries and merges read more of a file.",
)
DISTRIBUTION_MODE: Final[str] = TableProperty(
    "write.distribution-mode",
    "Iceberg's own, set by `write ordered by`: `range`, or `none` with `sort_on_load: false` and where the "
    "query of a load is sorted along a curve.",
    "Spark's writers do as Iceberg's default says.",
)

CARRIED_OVER: Final = (READS, SUSPENDED)
"""The properties that a table recreated by dbt inherits: no model can set them."""


def curve_property(column: str) -> str:
    """Return the name of the property that holds the boundaries of a column."""
    return f"{CURVE_PREFIX}{column}"
