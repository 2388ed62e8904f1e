"""What `recluster` does to one table besides its rounds: warnings, a key or a depth that follow reads, the order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from dbt_recluster.advice.auto_key import ChosenKey, auto_key
from dbt_recluster.advice.cost_model import CostModel, ReclusterEstimate, auto_depth
from dbt_recluster.advice.imported_reads import has_recorded, record_queries
from dbt_recluster.clustering.conditions import block_count
from dbt_recluster.clustering.options import AUTO, RECLUSTER_OPTIONS, ReclusterOptions
from dbt_recluster.clustering.recluster import Recluster
from dbt_recluster.clustering.result import ReclusterResult
from dbt_recluster.clustering.verdict import Facts, decide, reason_text
from dbt_recluster.exceptions import ClusterKeyError
from dbt_recluster.iceberg import sort_order
from dbt_recluster.iceberg.session.jobs import stop_if_interrupted
from dbt_recluster.operations.declaration import Call
from dbt_recluster.operations.model_options import unknown_properties


def _record_reads(call: Call) -> list[str]:
    """Record the project's reads with the table if its model says so, unless they are recorded; return warnings."""
    if call.target.options is None or not call.target.options.records_reads:
        return []
    try:
        if call.queries and not has_recorded(call.table, call.queries):
            record_queries(call.table, call.queries)
    except Exception as e:  # whatever fails, the recluster follows the reads recorded before
        return [f"the project's reads were not recorded: {call.context.explain(e)}"]
    return []


def option_warnings(call: Call) -> Iterator[str]:
    """Yield what is wrong with the model's or the table's options, and what happens to a key that is not the model's.

    Raises:
        ClusterKeyError: The key contradicts that of a model of this project.
    """
    model, key = call.target.options, call.arguments.get("cluster_by")
    if key is not None:
        if key.note:
            yield key.note
        try:
            model_key = model.cluster_by if model else sort_order.recorded_key(call.opened.iceberg.properties)
        except ClusterKeyError as e:
            model_key = None
            yield str(e)
        if model is not None:
            model.check_key(call.target.relation, call.table.key)
        elif model_key is not None and str(model_key).lower() != str(call.table.key).lower():
            if model_key.curve:  # a recluster by hand records it too
                yield f"the next run of its model changes the key back to {model_key}"
            else:
                yield f"its model has cluster_by {model_key} and makes that its sort order again at its next run"
    if model is None:
        rows, name = call.arguments.get("block_rows"), RECLUSTER_OPTIONS["block_rows"].table_property
        if rows is not None and str(rows) != call.opened.iceberg.properties.get(name):
            yield (
                f"block_rows {rows} is for this call; one without it merges the blocks again. To keep it: alter table "
                f"{call.opened.name} set tblproperties ('{name}' = '{rows}')"
            )
        for name in unknown_properties(call.opened.iceberg.properties):
            yield f"table property {name} is not an option of dbt-recluster and is ignored"
        return
    yield from model.unknown
    if model.sorted_by is not None and not sort_order.is_cluster_key(call.opened.iceberg, call.table.key):
        yield f"the cluster key {call.table.key} overrides its model's sorted_by ({model.sorted_by})"


def recluster_table(call: Call, options: ReclusterOptions) -> ReclusterResult:
    """Recluster a table; resolve ``auto`` and record reads and options before, estimate the week's loss after.

    A table for which ``auto`` has chosen no key stays as it is.
    """
    table, model, changes, warnings = call.table, call.target.options, dict[str, str | None](), list[str]()
    if table.iceberg.branch is None:
        warnings = [] if options.dry_run else _record_reads(call)
        if model is not None and call.context.records_options:
            changes = model.recorded(table.iceberg.properties)
    chose = ""
    if call.is_auto:
        chosen = auto_key(call.opened, options)
        changes = {**changes, **chosen.properties}
        if chosen.key is None:
            left = _left_as_loaded(call, options, chosen, changes)
            return replace(left, warnings=[*call.opened.reads.follow(options.reads), *warnings])
        if chosen.is_new:
            table, chose = call.opened.under(chosen.key), chosen.text()
    if options.depth == AUTO:
        table.predicate(options.where)  # which is refused first
        table.reads.follow(options.reads)
        depth = auto_depth(table)
        options, changes = replace(options, depth=depth.depth), {**changes, **depth.as_properties()}
    rounds = Recluster(table, options, changes)
    result = rounds.run()
    if rounds.outcome.is_attempt and call.context.failures is not None:
        call.context.failures.keep(call.target.relation, None)
    if result.rounds and table.reads.for_key(table.key).reads is not None:
        with suppress(Exception):  # an expiry meanwhile; the rounds are committed
            result.loss = CostModel(table, options.policy).loss()
    if result.verdict == "deep" and not (options.max_bytes is None and options.max_seconds is None):
        costs = CostModel(table, options.policy)
        short = reason_text(costs.shortfall(result.depth_after or 0.0, result.threshold or 0.0))
        result.reason, result.cause = ("; ".join(filter(None, (text, short))) for text in (result.reason, result.cause))
    result.warnings += warnings
    result.purpose = "; ".join(filter(None, (chose, result.purpose)))
    return result


def _left_as_loaded(
    call: Call, options: ReclusterOptions, chosen: ChosenKey, changes: Mapping[str, str | None]
) -> ReclusterResult:
    """Record what a table without a key needs for the next choice; return why it has none."""
    table, standing, blocks = call.opened, decide(Facts(keyless=chosen.text())), block_count(call.opened)
    if not options.dry_run:
        sort_order.TableChange(properties=changes).commit(table.iceberg)
    result = ReclusterResult(table.name, AUTO, blocks_before=blocks, blocks_after=blocks)
    return replace(result, verdict=standing.verdict, reason=standing.text, cause=standing.cause)


def recluster_estimate(call: Call, options: ReclusterOptions) -> ReclusterEstimate:
    """Return what a recluster of the call's table would cost and gain."""
    return CostModel.from_options(call.table, options).recluster(call.table.predicate(options.where))


def gain_first(calls: list[Call]) -> list[Call]:
    """Sort calls by what the tables gain for each byte, under a budget or where the context asks for it."""

    def loss(call: Call) -> float:
        stop_if_interrupted()
        try:
            # The call itself opens the table when its turn comes.
            mine = replace(call)
            return -recluster_estimate(mine, mine.options(**mine.given)).gain_per_byte
        except Exception as e:
            stop_if_interrupted(e)
            return 0.0  # its own run raises it again

    is_sorted = len(calls) > 1 and (calls[0].context.gain_first or calls[0].context.budget.total is not None)
    return sorted(calls, key=loss) if is_sorted else calls
