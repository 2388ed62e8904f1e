"""Operations in dbt, those that a node's hooks call, and a table's figures as dbt shows them.

The figures are those of the generic test ``well_clustered``, of dbt docs, and of the response of a build.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import Any

from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.spark.impl import SparkAdapter

from dbt_recluster.adapter.dbt_errors import ConfigurationError, failure, logger
from dbt_recluster.adapter.existing_tables import ExistingTables, own_names
from dbt_recluster.api import OPERATIONS, ClusteredTable, ProgressCallback, ReclusterResult, well_clustered
from dbt_recluster.clustering.history import table_history
from dbt_recluster.clustering.information import table_information
from dbt_recluster.clustering.table_state import FailureFile
from dbt_recluster.exceptions import OptionError
from dbt_recluster.names import NameResolution, name_parts
from dbt_recluster.operations.arguments import FORMAT, TABLE, arguments_of, read_arguments
from dbt_recluster.operations.declaration import (
    Answer,
    Context,
    Operation,
    RunBudget,
    Summary,
    record_metrics,
    run_operation,
)
from dbt_recluster.operations.model_options import META
from dbt_recluster.operations.targets import CLUSTERED, TABLES, Node, Target, choose, labelled, project_queries
from dbt_recluster.report.result_text import RESUME_WITH_DBT, ProgressLines, opened_on_curve
from dbt_recluster.text import size


@dataclass
class DbtContext(Context):
    """Where operations run in dbt."""

    adapter: SparkAdapter
    tables: ExistingTables
    budget: RunBudget
    trigger: str = "manual"
    off_by: str = ""
    failures: FailureFile | None = None
    absent: str = "not built yet as an Iceberg table"
    resume = RESUME_WITH_DBT

    def open(self, relation: str) -> ClusteredTable:
        """Open a table."""
        return self.tables.session.open(relation)

    def exists(self, target: Target) -> bool:
        """Return whether an Iceberg table is built; ``dbt clone`` leaves views."""
        *catalog, schema, identifier = name_parts(target.relation)
        database: Any = catalog[0] if catalog else self.adapter.config.credentials.database
        relation: Any = self.adapter.get_relation(database, schema, identifier)
        # The format of a table that a custom materialization has just built is unknown.
        return relation is not None and not relation.is_view and relation.is_iceberg is not False

    def names(self) -> NameResolution:
        """Return which table a name means to the connection."""
        catalogs = self.tables.catalogs
        return NameResolution(lambda: catalogs.current, catalogs.is_catalog, self.is_one_table)

    def queries(self, unique_id: str) -> Mapping[str, str]:
        """Return the compiled SQL of the nodes that read a node's table, by name."""
        manifest: Any = self.adapter.get_macro_resolver()
        target_path = self.adapter.config.project_target_path

        def compiled(node: Node) -> str | None:
            of_dbt = manifest.nodes[node["unique_id"]]
            if text := getattr(of_dbt, "compiled_code", None):
                return str(text)
            try:  # the file of an earlier run
                return Path(of_dbt.get_target_write_path(target_path, "compiled")).read_text("utf-8")
            except (OSError, ValueError):
                return None

        return project_queries(manifest.flat_graph["nodes"], unique_id, compiled)

    def own_configs(self, unique_id: str) -> set[str] | None:
        """Return the configs in a node's SQL and properties file; None in a package: the project overrides them."""
        manifest: Any = self.adapter.get_macro_resolver()
        node, key = manifest.nodes[unique_id], f"{unique_id.partition('.')[0]}s"
        properties = manifest.files.get(node.patch_path)
        if node.package_name != self.adapter.config.project_name or (node.patch_path and properties is None):
            return None
        of_node = [node.config_call_dict]
        if properties is not None:
            versions = dict.fromkeys((None, getattr(node, "version", None)))
            of_node += (properties.get_unrendered_config(key, node.name, version) or {} for version in versions)
            # dbt keeps a `meta` beside `config` only in the file's text.
            of_node += (entry for entry in properties.dict_from_yaml.get(key) or () if entry.get("name") == node.name)
        in_meta = any(META in (configs.get("meta") or {}) for configs in of_node)
        return {*(name for configs in of_node for name in configs), *([f"meta.{META}"] if in_meta else [])}

    def progress(self) -> ProgressCallback | None:
        """Return what shows the progress of one recluster."""
        if self.trigger == "run":  # lines of other threads would mix with one that is overwritten
            return ProgressLines(logger.debug)
        return ProgressLines(logger.info, sys.stderr)

    def explain(self, error: Exception) -> str:
        """Return an error in one line; its traceback goes to dbt's log."""
        return failure(error)


def acts(flags: Any) -> bool:
    """Return whether this is a command that may change tables; dbt renders hooks in those that only compile, too."""
    commands = ("build", "clone", "run", "run-operation", "seed", "snapshot")
    return flags.WHICH in commands and not getattr(flags, "EMPTY", False)


def operate(name: str, args: Mapping[str, Any], macros: Mapping[str, Any], context: DbtContext) -> None:
    """Run an operation on the tables that its arguments choose."""
    operation = OPERATIONS.named(name)
    for argument in operation.arguments:
        if argument.var and args.get(argument.name) is None:
            args = {**args, argument.name: argument.of_var(macros["var"])}
    arguments = operation.read((TABLE, FORMAT), args)
    table = arguments[TABLE.name]
    if operation.needs_choice and table is None:
        raise OptionError(f"{name} needs a table: --args '{{table: schema.name}}'")
    graph = macros["graph"]
    project = labelled(graph["nodes"], graph.get("groups", {})).values()
    with context.tables.session.cancellable():
        targets = choose(project, table, context.names(), operation.eligible)
        run_and_print(operation, targets, arguments, context, macros)


def run_and_print(
    operation: Operation,
    targets: list[Target],
    arguments: Mapping[str, Any],
    context: DbtContext,
    macros: Mapping[str, Any],
) -> None:
    """Run an operation and print each answer at once; that of a rewrite is a numbered line in dbt's log."""
    as_json = arguments["format"] == "json"
    warn, is_quiet = macros["exceptions"]["warn"], macros["flags"].QUIET
    answers: list[Answer] = []
    above = ""
    for answer, number, count in run_operation(operation, targets, arguments, context):
        text = answer.text
        if operation.is_rewrite:
            line = f"{number} of {count} {answer.text or answer.values['reason']}"
            macros["log"](line, info=True)
            text = "\n".join(filter(None, [line if is_quiet else "", answer.detail]))
        elif text:
            is_apart = above and "\n" in above + text
            text, above = f"\n{text}" if is_apart else text, text
        answers.append(answer)
        if text and not as_json:
            macros["print"](text)
        for warning in answer.warnings:
            warn(f"{answer.table}: {warning}")
    if (path := operation.metrics_path(arguments)) is not None:
        project = {target.relation for target in CLUSTERED.targets(macros["graph"]["nodes"].values())}
        for warning in record_metrics(answers, path, project):
            warn(warning)
    summary = _end(operation, answers, arguments, macros["target"])
    if summary.text:
        macros["print"](summary.text)
    failed = [answer for answer in answers if answer.error is not None]
    if failed and operation.is_rewrite:
        names = ", ".join(answer.table for answer in failed)
        what = f"{len(failed)} of {len(answers)} tables" if len(answers) > 1 else "the table"
        raise ConfigurationError(f"{what} failed: {names}")
    if failed or summary.error:
        raise ConfigurationError("\n".join(filter(None, [*(answer.failure for answer in failed), summary.error])))


def _end(
    operation: Operation, answers: list[Answer], arguments: Mapping[str, Any], target: Mapping[str, Any]
) -> Summary:
    """Return the text after the last table."""
    summary = operation.end(answers, arguments)
    if operation.finish is None and isinstance(arguments["table"], str) and len(answers) == 1:
        summary = Summary("", answers[0].values)
    if arguments["format"] == "json":
        return replace(summary, text=json.dumps(summary.values, indent=2, ensure_ascii=False))
    none = "No Iceberg table of this project is built yet for the target {name}, whose schema is {schema}."
    return summary if answers else replace(summary, text=none.format(**target))


# --- in the hooks of a node ---


def with_table(args: Mapping[str, Any], macros: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return an operation's arguments, with the table of the hook's node by default, and whether it is that table."""
    has_table = (macros.get("model") or {}).get("resource_type") in TABLES
    this = macros["this"].render() if has_table else None
    # An empty list or text is an error: it must not mean all tables.
    table = this if args.get(TABLE.name) is None else args[TABLE.name]
    tables = table if isinstance(table, list) else [table]
    names = [each.render() if isinstance(each, BaseRelation) else each for each in tables]
    is_own = has_table and len(names) == 1 and isinstance(names[0], str) and names[0] in own_names(macros)
    return {**args, TABLE.name: names if tables is table else names[0]}, is_own


def precedes_table(macros: Mapping[str, Any]) -> bool:
    """Return whether a hook of a node runs before the first build of its table."""
    return macros["load_result"]("main") is None and macros["load_cached_relation"](macros["this"]) is None


def check_is_built(macros: Mapping[str, Any]) -> None:
    """Refuse a hook that reclusters its node's table before that is built."""
    if macros["load_result"]("main") is None:
        raise OptionError(
            f"recluster() of {macros['model']['name']} is called before its table is built: it is for a post_hook, and "
            'in quotes, post_hook="{{ recluster() }}"'
        )


# --- a table's figures, for the generic test, dbt docs and run_results.json ---


def clustering_violations(
    model: Any, args: Mapping[str, Any], open_table: Callable[[str], ClusteredTable]
) -> list[dict[str, Any]]:
    """Return the limits of the generic test that the table of ``model`` exceeds."""
    arguments = read_arguments("well_clustered", arguments_of(well_clustered), args)
    if not isinstance(model, BaseRelation):
        raise OptionError("well_clustered does not support the test config `where`; use its argument `predicate`")
    table = open_table(model.render())
    return well_clustered(table.iceberg.spark, table, **arguments)


def clustering_statistics(clustered: ClusteredTable) -> dict[str, Any]:
    """Return a table's clustering statistics for dbt's catalog, four entries for each."""
    information = table_information(clustered)
    rounds = [entry for entry in table_history(clustered) if entry.is_recluster]
    last = f"{rounds[-1].at:%Y-%m-%d %H:%M} UTC" if rounds else "never"
    curve, ratio = information.get("curve"), information["clustering_ratio"]
    over = "lie over one place of the curve" if curve else "a query for one key opens"
    fragmentation = "How many blocks there are for each full one that the rows and bytes would make."
    key, total = information["cluster_key"], size(information["total_bytes"])
    statistics: list[tuple[str, str, Any, str]] = [
        ("cluster_key", "Cluster key", key, "Columns and expressions that the blocks are clustered by."),
        ("block_count", "Blocks", information["total_block_count"], "Data files of the table."),
        ("block_bytes", "Size of all blocks", total, "Older snapshots are not included."),
        ("average_depth", "Average depth", information["average_depth"], f"How many blocks {over}."),
        *(
            (f"opened_{number}", f"Blocks that {name} opens", now, f"{then:g} if all were sorted at once.")
            for number, (name, now, then) in enumerate(opened_on_curve(curve) if curve else ())
        ),
        ("clustering_ratio", "Clustering ratio", ratio, "100 when no two blocks overlap."),
        ("fragmentation", "Blocks for each full one", information["fragmentation"], fragmentation),
        ("last_recluster", "Last recluster", last, "The last round that the table's snapshots record."),
    ]
    entries: dict[str, Any] = {}
    for name, label, value, description in statistics:
        # A string, since dbt's catalog has one type for the values of all tables of a schema.
        text = f"{value:g}" if isinstance(value, float) else str(value)
        facts = {"label": label, "value": text, "description": description, "include": True}
        entries |= {f"stats:{name}:{fact}": content for fact, content in facts.items()}
    return entries


# The fields of dbt's response after a recluster, in run_results.json, and the figures of its result.
FIGURES = {
    "blocks_rewritten": "blocks_in",
    "blocks_written": "blocks_out",
    "bytes_rewritten": "bytes_in",
    "bytes_written": "bytes_out",
    "rows_rewritten": "rows",
    "block_count": "blocks_after",
    "depth_before": "depth_before",
    "depth": "depth_after",
    "average_depth_before": "average_depth_before",
    "average_depth": "average_depth_after",
    "read_depth_before": "read_depth_before",
    "read_depth": "read_depth_after",
    "threshold": "threshold",
    "verdict": "verdict",
    **{
        f"recluster_{name}": name
        for name in ("rounds", "conflicts", "seconds", "reason", "condition_met", "suspended", "loss")
    },
}
_Response: type[Any] = make_dataclass(
    "ReclusterResponse", [(name, Any, None) for name in FIGURES], bases=(AdapterResponse,)
)


def respond(response: Any, result: ReclusterResult | None, notes: Sequence[str]) -> Any:
    """Return dbt's response for a build, with notes on the model's line and the figures of a recluster."""
    plain = response if isinstance(response, AdapterResponse) else AdapterResponse(str(response))
    if notes:
        # dbt's field for the text of the line has no public name.
        plain = replace(plain, _message=f"{plain._message} ({'; '.join(notes)})")
    if result is None:
        return plain
    figures = result.as_dict()
    return _Response(**{**vars(plain), **{name: figures[figure] for name, figure in FIGURES.items()}})
