"""The operations on the reads of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dbt_recluster.clustering.information import ReadsInformation, reads_information
from dbt_recluster.clustering.reads.table_reads import ImportedReads
from dbt_recluster.clustering.values import parse_event_log, parse_logged_as
from dbt_recluster.exceptions import OptionError
from dbt_recluster.operations.arguments import SINCE, key_argument
from dbt_recluster.operations.declaration import Argument, Operation
from dbt_recluster.report import reads_text

if TYPE_CHECKING:
    from dbt_recluster.operations.call import Call


def _reads(call: Call) -> ReadsInformation:
    own = call.target.options
    call.table.reads.follow(own.recluster.reads if own else None)
    return reads_information(call.table)


def _import(call: Call) -> ImportedReads:
    event_log, since, logged_as = (call.arguments[name] for name in ("event_log", "since", "logged_as"))
    if event_log is not None:
        return call.opened.reads.import_event_logs(event_log, since, logged_as)
    if since is not None or logged_as is not None:
        raise OptionError("since and logged_as are about Spark's event logs: name them with event_log")
    if not call.queries:
        relation = call.target.relation
        advice = (
            "run dbt compile first, or name"
            if call.target.unique_id
            else "it is no model of this project; name"
        )
        raise OptionError(
            f"{relation}: nothing of this project that reads it is compiled; {advice} Spark's event logs with event_log"
        )
    return call.opened.reads.record_queries(call.queries)


def _forget(call: Call) -> dict[str, Any]:
    """Drop the recorded reads of a table.

    Returns:
        table: The table.
        forgotten: Ranges that it recorded.
    """
    return {"table": call.target.relation, "forgotten": call.opened.reads.forget()}


READS = Operation(
    "clustering_reads",
    "reads",
    "Print the reads of tables, declared or recorded: the range of each, how often it is read, the blocks that it "
    "opens, and how many of them are wasted. Changes nothing.",
    _reads,
    lambda reads, _: reads_text.reads(reads.as_dict()),
    (key_argument("The key to measure by; the table keeps its own"),),
)
IMPORT = Operation(
    "import_reads",
    "",
    "Record the reads of tables, which every recluster then follows: ranges and counts, never the text of a query. "
    "They come from the compiled SQL of this project's models, snapshots, tests and analyses (none is run; analyses "
    "are compiled by dbt compile alone), or from the event logs of any Spark application.",
    _import,
    lambda imported, _: reads_text.imported(imported.as_dict()),
    (
        Argument(
            "event_log",
            parse_event_log,
            "A directory of Spark's event logs, or one log, on any file system that Spark reads.",
            otherwise="the project's compiled SQL",
            metavar="PATH",
        ),
        SINCE,
        Argument(
            "logged_as",
            parse_logged_as,
            "The table's full name in the logs, if other applications give its catalog another name.",
            otherwise="its name here",
            metavar="NAME",
        ),
    ),
    needs_choice=True,
)
FORGET = Operation(
    "forget_reads",
    "",
    "Drop the recorded reads of tables, those of import_reads and of recluster_reads: project.",
    _forget,
    lambda values, _: reads_text.forgotten(values),
    needs_choice=True,
)
