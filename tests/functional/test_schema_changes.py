"""Incremental models whose columns change, on Iceberg tables."""

from typing import Any

import pytest
from clustered_models import Clustering, snapshot
from dbt.tests.util import run_dbt


class SchemaChange(Clustering):
    @pytest.fixture
    def columns(self, project: Any, spark: Any) -> Any:
        return lambda table: [" ".join(column) for column in spark.table(f"{project.test_schema}.{table}").dtypes]


class TestAppendNewColumns(SchemaChange):
    """Columns that the model no longer selects are NULL in new rows and untouched in others."""

    MERGE = {"incremental_strategy": "merge", "unique_key": "id"}
    OVERWRITE = {"incremental_strategy": "insert_overwrite", "partition_by": "id"}
    REST = ((2, "a", 20, None), (3, "c", None, 1.5))

    @pytest.mark.thorough
    @pytest.mark.alike
    @pytest.mark.parametrize(
        ("name", "options", "expected"),
        [
            ("appended", {"incremental_strategy": "append"}, [(1, "a", 10, None), (1, "b", None, 0.5)]),
            ("merged", MERGE, [(1, "b", 10, 0.5)]),
            ("merged_some", {**MERGE, "merge_update_columns": ["More", "Gone"]}, [(1, "a", 10, 0.5)]),
            ("merged_gone", {**MERGE, "merge_update_columns": ["gone"]}, [(1, "a", 10, None)]),
            ("merged_others", {**MERGE, "merge_exclude_columns": ["V"]}, [(1, "a", 10, 0.5)]),
            ("merged_none", {**MERGE, "merge_exclude_columns": ["id", "v", "gone", "more"]}, [(1, "a", 10, None)]),
            ("overwritten", OVERWRITE, [(1, "b", None, 0.5)]),
        ],
    )
    def test_append_new_columns_fills_missing_columns_with_null(
        self, run: Any, sql: Any, name: str, options: dict[str, Any], expected: list[Any]
    ) -> None:
        options = {**options, "on_schema_change": "append_new_columns", "cluster_by": "v"}
        run(name, "select id, 'a' as v, cast(id * 10 as int) as gone from range(1, 3)", **options)
        query = "with q as (select 1 as id, 'b' as v, 0.5d as more union all select 3, 'c', 1.5d) select * from q"
        run(name, query, **options)
        rows = sql(f"select id, v, gone, more from {{schema}}.{name} order by id, v")
        assert rows == [*expected, *self.REST]

    def test_an_or_in_a_predicate_keeps_the_unique_key(self, run: Any, sql: Any) -> None:
        either = "DBT_INTERNAL_DEST.id > 0 or DBT_INTERNAL_DEST.id is null"
        for name, predicates in (("by_list", [either]), ("by_text", either)):
            for rows in ("(1, 'a'), (2, 'b')", "(2, 'c')"):
                query = f"select * from values {rows} as t (id, v)"
                run(name, query, **self.MERGE, incremental_predicates=predicates)
            assert sql(f"select id, v from {{schema}}.{name} order by id") == [(1, "a"), (2, "c")]

    def test_an_overwrite_of_no_rows_empties_the_table(self, run: Any, sql: Any) -> None:
        # The first sets DYNAMIC in the session.
        for name, more in (("by_day", {"partition_by": "id"}), ("alerts", {})):
            options = {"materialized": "incremental", "incremental_strategy": "insert_overwrite", **more}
            for below in (3, 1):
                run(name, f"select id from range(1, {below})", **options)
        assert (sql("select count(*) from {schema}.by_day"), sql("select * from {schema}.alerts")) == ([(2,)], [])

    def test_a_merge_that_excludes_all_columns_only_inserts(self, run: Any, sql: Any) -> None:
        options = {**self.MERGE, "merge_exclude_columns": ["id", "v"]}
        for rows in ("(1, 'a')", "(1, 'b'), (2, 'c')"):
            run("inserted", f"select * from values {rows} as t (id, v)", **options)
        assert sql("select id, v from {schema}.inserted order by id") == [(1, "a"), (2, "c")]


class TestSyncAllColumns(SchemaChange):
    SYNC = {"on_schema_change": "sync_all_columns"}

    def test_sync_all_columns_adds_drops_and_widens(self, run: Any, sql: Any, columns: Any) -> None:
        old = "select 1 as `a b`, 'x' as `select`, 1 as n, 1.5f as f, cast(1 as decimal(5, 2)) as d"
        run("synced", old, **self.SYNC)
        new = "select 'y' as `a-b`, 2 as `select.x`, 2L as n, 2.5d as f, cast(2 as decimal(9, 2)) as d"
        run("synced", new, **self.SYNC)
        expected = ["n bigint", "f double", "d decimal(9,2)", "a-b string", "select.x int"]
        assert columns("synced") == expected
        rows = sql("select n, f, d, `a-b`, `select.x` from {schema}.synced order by n")
        assert [(*row[:2], float(row[2]), *row[3:]) for row in rows] == [
            (1, 1.5, 1.0, None, None),
            (2, 2.5, 2.0, "y", 2),
        ]

    BY_HAND = {"post_hook": "alter table {{ this }} write ordered by truncate(k, 10) desc"}

    @pytest.mark.parametrize(
        ("name", "old", "new", "options", "message"),
        [
            ("narrowed", "1L as id, 1 as gone", "1 as id", {}, "is bigint, and the model now selects int"),
            ("keyed", "1 as id, 2 as k", "1 as id", {"cluster_by": "k"}, "which cluster_by names. Change"),
            ("by_hand", "1 as id, 2 as k", "1 as id", BY_HAND, "by_hand write unordered` before"),
            ("parted", "1 as id, 2 as p", "1 as id", {"partition_by": "p"}, "which the table is partitioned"),
        ],
    )
    def test_a_change_that_cannot_be_is_refused_before_anything_is_altered(
        self, run: Any, sql: Any, columns: Any, name: str, old: str, new: str, options: dict[str, Any], message: str
    ) -> None:
        def state() -> tuple[Any, ...]:
            return columns(name), sql(f"select snapshot_id from {{schema}}.{name}.snapshots")

        run(name, f"select {old}", **self.SYNC, **options)
        before = state()
        error = run(name, f"select {new}", passes=False, **self.SYNC, **options)
        assert message in error
        assert "macro" not in error
        assert state() == before

    def test_the_key_moves_to_a_new_column_as_its_own_goes(self, run: Any, sql: Any, columns: Any) -> None:
        run("moved", "select id, id % 7 as k from range(100)", cluster_by="k", **self.SYNC)
        run("moved", "select id, id % 5 as j from range(100, 200)", cluster_by="j", **self.SYNC)
        assert columns("moved") == ["id bigint", "j bigint"]
        properties = self.properties(sql, "moved")
        assert properties["sort-order"] == "j ASC NULLS FIRST"
        assert [name for name in properties if name.endswith((".k", ".j"))] == ["write.metadata.metrics.column.j"]
        rows = sql("select j from {schema}.moved where id >= 100 order by _file, _pos")
        assert rows == sorted(rows)  # the load arrived sorted by the new key

    @pytest.mark.alike
    @pytest.mark.parametrize("materialized", ["table", "incremental"])
    def test_the_key_of_a_replaced_table_leaves_nothing_behind(self, materialized: str, run: Any, sql: Any) -> None:
        name = f"replaced_{materialized}"
        options = {"materialized": materialized, "partition_by": "p"}
        run(name, "select id as k, 1 as p from range(9)", cluster_by="k", **options)
        options["partition_by"] = "j"
        run(name, "select id, id % 2 as j from range(9)", "--full-refresh", cluster_by="id", **options)
        properties = self.properties(sql, name)
        assert properties["sort-order"] == "id ASC NULLS FIRST"
        metrics = [name for name in properties if "metrics.column" in name]
        assert metrics == ["write.metadata.metrics.column.id"]
        run(name, "select id, 3 as j from range(9)", "--full-refresh", cluster_by=None, **options)
        sql(f"alter table {{schema}}.{name} set tblproperties ('any' = 'thing')")
        assert sql(f"select count(*) from {{schema}}.{name}") == [(9,)]


class TestSnapshots(SchemaChange):
    """A snapshot of a clustered table takes new columns on, and keeps those that its query no longer selects."""

    SNAPSHOTS = snapshot("history", "source", ["v"], cluster_by=["id", "dbt_valid_from"])

    @pytest.mark.exhaustive
    def test_a_snapshot_keeps_columns_its_query_dropped(self, project: Any, run: Any, sql: Any) -> None:
        rows = "select id, v, {} from values (1, '{}'), (2, 'b') as t (id, v)"
        for more, v in (("0 as old", "a"), ("0 as old, id as `new one`", "c"), ("id as `new one`", "d")):
            run("source", rows.format(more, v), materialized="table")
            run_dbt(["snapshot"])
        assert sql("select id, v, old, `new one`, dbt_valid_to is null from {schema}.history order by 1, 2") == [
            (1, "a", 0, None, False),
            (1, "c", 0, 1, False),
            (1, "d", None, 1, True),
            (2, "b", 0, None, True),
        ]
        expected = "id ASC NULLS FIRST, dbt_valid_from ASC NULLS FIRST"
        assert self.properties(sql, "history")["sort-order"] == expected


class TestSnapshotsByTwoColumns(SchemaChange):
    SNAPSHOTS = {
        name: text.replace("unique_key='id'", "unique_key=['id', 'part']")
        for name, text in snapshot("history", "source", ["v"], cluster_by="id").items()
    }

    def test_a_snapshot_keeps_its_columns(self, run: Any, sql: Any) -> None:
        rows = "select id, part, '{}' as v from values (1, 1), (1, 2) as t (id, part)"
        for v in "abb":
            run("source", rows.format(v), materialized="table")
            run_dbt(["snapshot"])
            if v == "a":  # as dbt-spark does
                sql("alter table {schema}.history add columns (dbt_unique_key_1 int, dbt_unique_key_2 int)")
        history = sql("select id, part, v, dbt_valid_to is null from {schema}.history order by 2, 3")
        assert history == [(1, part, v, v == "b") for part in (1, 2) for v in "ab"]
        assert not any("unique_key" in row[0] for row in sql("describe {schema}.history"))
