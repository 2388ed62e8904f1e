"""Models and seeds of Spark's own formats, beside Iceberg tables in one lake: built again, and changed."""

from pathlib import Path
from typing import Any

import pytest
from clustered_models import Clustering
from dbt.tests.util import run_dbt, write_file
from tables import spark_settings

SEED = "id,name\n1,one\n2,two\n"


class FileFormats(Clustering):
    @pytest.fixture
    def provider(self, sql: Any) -> Any:
        def provider(table: str) -> str:
            rows = sql(f"describe extended {{schema}}.{table}")
            return str(next(row[1] for row in rows if row[0] == "Provider"))

        return provider

    @staticmethod
    def ids(sql: Any, table: str) -> list[int]:
        return [row[0] for row in sql(f"select cast(id as int) from {{schema}}.{table} order by 1")]


class TestBuiltAgain(FileFormats):
    """A second run, a second seed and a full refresh."""

    SEEDS = {"sown.csv": SEED}

    @pytest.mark.alike
    @pytest.mark.parametrize("file_format", ["parquet", "orc", "csv", "json", "hive", "text"])
    def test_a_table_of_each_format_is_built_again(self, file_format: str, run: Any, sql: Any, provider: Any) -> None:
        table, grown = f"table_{file_format}", f"grown_{file_format}"
        query = "select string(id) as id from range(1, {})"
        for last in (2, 3):
            run(table, query.format(last), materialized="table", file_format=file_format)
            assert self.ids(sql, table) == list(range(1, last))
        for last, flags, expected in ((2, [], [1]), (3, [], [1, 1, 2]), (3, ["--full-refresh"], [1, 2])):
            run(grown, query.format(last), *flags, file_format=file_format)
            assert self.ids(sql, grown) == expected
        assert provider(table) == provider(grown) == file_format

    @pytest.mark.thorough
    def test_a_seed_is_built_again_in_another_format(self, project: Any, sql: Any, provider: Any) -> None:
        for file_format in ("parquet", "parquet", "iceberg", "parquet"):
            properties = f"seeds: [{{name: sown, config: {{file_format: {file_format}}}}}]"
            write_file(properties, project.project_root, "seeds", "s.yml")
            run_dbt(["seed"])
            assert self.ids(sql, "sown") == [1, 2]
            assert provider("sown") == file_format


class TestChangedFormat(FileFormats):
    """From Iceberg to a format of Spark's own and back, also where it does not succeed."""

    @pytest.fixture
    def directory(self, project: Any, lake: Path) -> Path:
        return lake / "warehouse" / f"{project.test_schema}.db"

    @pytest.mark.thorough
    @pytest.mark.alike
    @pytest.mark.parametrize("materialized", ["table", "incremental"])
    def test_a_table_changes_its_format_and_back(
        self, materialized: str, run: Any, sql: Any, provider: Any, directory: Path
    ) -> None:
        name = f"changing_{materialized}"
        flags = ["--full-refresh"] if materialized == "incremental" else []
        for last, file_format in ((2, "iceberg"), (3, "parquet"), (4, "parquet"), (5, "iceberg"), (6, "orc")):
            query = f"select id from range(1, {last})"
            run(name, query, *flags, materialized=materialized, file_format=file_format)
            assert self.ids(sql, name) == list(range(1, last))
            assert provider(name) == file_format
        # A drop leaves the files of both Iceberg tables; those of the second are in nobody's way.
        (aside,) = directory.glob(f"{name}.*")
        for path in (aside, directory / f"{name}__dbt_iceberg"):
            assert list(path.glob("data/*.parquet"))

    @pytest.mark.alike
    @pytest.mark.parametrize("before", ["iceberg", "parquet"])
    @pytest.mark.parametrize(
        ("query", "after"),
        [
            ("cast(raise_error('late') as int)", "parquet"),
            ("id", "delta"),
            ("id", "text"),
            *(("nope", after) for after in ("parquet", "iceberg")),
        ],
    )
    def test_a_failed_change_of_format_leaves_the_table(
        self, before: str, query: str, after: str, run: Any, sql: Any
    ) -> None:
        for name, items in (("kept", {"materialized": "table"}), ("grown", {})):
            run(name, "select id from range(1, 3)", "--full-refresh", file_format=before, **items)
            failing = f"select {query} as id from range(1, 5)"
            run(name, failing, "--full-refresh", file_format=after, passes=False, **items)
            assert self.ids(sql, name) == [1, 2]

    def test_a_name_with_capitals_is_that_of_its_table(self, run: Any, sql: Any, provider: Any) -> None:
        """Hive's catalog keeps names in lower case."""
        options = {"materialized": "incremental", "cluster_by": "id"}
        run("Mixed", "select id, id as v from range(1, 3)", **options)
        sql("alter table {schema}.mixed set tblproperties ('by.hand' = 'yes')")
        run("Mixed", "select id, id as v from range(1, 4)", "--full-refresh", **options)
        assert self.ids(sql, "mixed") == [1, 2, 3]
        assert self.properties(sql, "mixed")["by.hand"] == "yes"
        options = {**options, "cluster_by": "w", "on_schema_change": "sync_all_columns"}
        run("Mixed", "select v, v as w from (select id as v from range(4, 6))", **options)
        assert (self.order(sql, "mixed"), sql("select count(w) from {schema}.mixed")[0][0]) == ("w ASC NULLS FIRST", 2)
        for last, file_format in ((3, "parquet"), (4, "iceberg")):
            run("Mixed", f"select id from range(1, {last})", materialized="table", file_format=file_format)
            assert (provider("mixed"), self.ids(sql, "mixed")) == (file_format, list(range(1, last)))

    def test_a_warning_that_is_an_error_loses_no_table(self, run: Any, sql: Any, provider: Any) -> None:
        run("warned", "select id from range(1, 3)", materialized="table")
        options = {"materialized": "table", "file_format": "parquet"}
        message = run("warned", "select id from range(1, 5)", "--warn-error", passes=False, **options)
        assert "They are moved to" in message
        assert (provider("warned"), self.ids(sql, "warned")) == ("iceberg", [1, 2])
        run("warned", "select id from range(1, 5)", **options)
        assert (provider("warned"), self.ids(sql, "warned")) == ("parquet", [1, 2, 3, 4])

    @pytest.mark.parametrize("before", ["parquet", "view"])
    def test_a_failure_while_it_runs_leaves_what_an_iceberg_table_replaces(
        self, before: str, run: Any, sql: Any, provider: Any, project: Any, directory: Path, tmp_path: Path
    ) -> None:
        name, query = f"moving_{before}", "select id from range(1, 3)"
        items = {"materialized": "view"} if before == "view" else {"file_format": before}
        run(name, query, **{"materialized": "table", **items})
        late = "select cast(raise_error('late') as int) as id from range(1, 5)"
        for materialized in ("table", "incremental"):
            message = run(name, late, "--full-refresh", passes=False, materialized=materialized, cluster_by="id")
            assert "late" in message
            assert self.ids(sql, name) == [1, 2]
        for last in (4, 5):
            run(name, f"select id from range(1, {last})", "--full-refresh", cluster_by="id")
            assert self.ids(sql, name) == list(range(1, last))
            assert (provider(name), self.order(sql, name)) == ("iceberg", "id ASC NULLS FIRST")
        names = {row[1] for row in sql("show tables in {schema}")}
        assert not {each for each in names if each.startswith(f"{name}__")}
        # The files of the present table stay while another takes their place.
        for more in ({}, {"location_root": str(tmp_path)}):
            assert "late" in run(name, late, "--full-refresh", passes=False, file_format="parquet", **more)
            assert self.ids(sql, name) == [1, 2, 3, 4]
            assert self.order(sql, name) == "id ASC NULLS FIRST"

    @pytest.mark.parametrize("before", ["table", "view", "parquet"])
    def test_a_view_that_fails_leaves_what_it_replaces(self, before: str, run: Any, sql: Any, project: Any) -> None:
        name, query = f"seen_{before}", "select id from range(1, 3)"
        options = {"materialized": "view"} if before == "view" else {"materialized": "table", "cluster_by": "id"}
        options |= {"file_format": "parquet"} if before == "parquet" else {}
        run(name, query, tblproperties={"own": "kept"}, **options)
        columns = f"models: [{{name: {name}, columns: [{{name: id, data_type: string}}]}}]"
        write_file(columns, project.project_root, "models", f"{name}.yml")
        failing: dict[str, tuple[str, dict[str, Any]]] = {
            "nope": ("select nope", {}),
            "already exists": ("select 1 as id, 2 as id", {}),
            "temporary view": (
                "select * from fleeting",
                {"pre_hook": "create or replace temp view fleeting as select 1 as id"},
            ),
            "contract": (query, {"contract": {"enforced": True}}),
            f"`{name}` cannot be found": ("select * from {{ this }}", {}),
        }
        for message, (failing_query, more) in failing.items():
            assert message in run(name, failing_query, "--full-refresh", passes=False, materialized="view", **more)
            assert self.ids(sql, name) == [1, 2]
            if before != "view":
                assert self.properties(sql, name)["own"] == "kept"
                assert self.order(sql, name) == ("id ASC NULLS FIRST" if before == "table" else "")
        for last in (4, 5):
            run(name, f"select id from range(1, {last})", materialized="view")
            assert self.ids(sql, name) == list(range(1, last))
        assert [row[1] for row in sql("show tables in {schema}") if name in row[1]] == [name]

    def test_a_clone_replaces_a_table(self, project: Any, run: Any, sql: Any) -> None:
        run("cloned", "select id from range(1, 3)", materialized="table")
        state = Path(project.project_root) / "state"
        state.mkdir(exist_ok=True)
        write_file((Path(project.project_root) / "target/manifest.json").read_text(), str(state), "manifest.json")
        clone = ["clone", "--full-refresh", "--select", "cloned", "--state", str(state)]
        run_dbt(clone, expect_pass=False)  # of itself
        assert self.ids(sql, "cloned") == [1, 2]
        sql("create table {schema}.original using iceberg as select id from range(1, 4)")
        manifest = (state / "manifest.json").read_text()
        for old in ('"alias": "cloned"', f'"relation_name": "{project.test_schema}.cloned"'):
            assert old in manifest
            manifest = manifest.replace(old, old.replace("cloned", "original"))
        write_file(manifest, str(state), "manifest.json")
        run_dbt(clone)
        assert self.ids(sql, "cloned") == [1, 2, 3]

    @pytest.mark.parametrize("before", ["iceberg", "parquet"])
    def test_a_seed_that_changes_format_and_fails_leaves_its_table(
        self, before: str, project: Any, sql: Any, provider: Any
    ) -> None:
        after = {"iceberg": "parquet", "parquet": "iceberg"}[before]
        name, rows = f"planted_{before}", "id,name\n1,one\n2,two\n"
        seed = ["seed", "--select", name]

        def write(file_format: str, text: str, kind: str = "int") -> None:
            config = f"{{file_format: {file_format}, column_types: {{id: {kind}}}}}"
            write_file(f"seeds: [{{name: {name}, config: {config}}}]", project.project_root, "seeds", f"{name}.yml")
            write_file(text, project.project_root, "seeds", f"{name}.csv")

        write(before, rows)
        run_dbt(seed)
        for kind in ("nope", "'int, late int'"):  # the second fails where rows are cast
            write(after, rows, kind)
            run_dbt(seed, expect_pass=False)
            assert self.ids(sql, name) == [1, 2]
            assert provider(name) == before
        write(after, rows + "3,three\n")
        run_dbt(seed)
        assert self.ids(sql, name) == [1, 2, 3]
        assert provider(name) == after

    @pytest.mark.parametrize("materialized", ["table", "view"])
    def test_the_next_run_completes_what_a_killed_one_began(self, materialized: str, run: Any, sql: Any) -> None:
        query, name = "select id from range(1, 3)", f"stopped_{materialized}"
        run(name, query, materialized="table")
        sql(f"alter table {{schema}}.{name} rename to {{schema}}.{name}__dbt_replaced")
        run(name, "select nope", passes=False, materialized=materialized)
        assert self.ids(sql, name) == [1, 2]
        sql(f"create table {{schema}}.{name}__dbt_replaced using iceberg as select 7 as id")
        run(name, query, materialized=materialized)
        assert [row[1] for row in sql("show tables in {schema}") if name in row[1]] == [name]

    def test_an_incremental_model_adds_no_row_twice_after_a_kill(self, run: Any, sql: Any) -> None:
        new = "{% if is_incremental() %} where id > (select max(id) from {{ this }}) {% endif %}"
        query, options = f"select id from range(1, 3) {new}", {"materialized": "incremental"}
        run("added", query, **options)
        sql("alter table {schema}.added rename to {schema}.added__dbt_replaced")
        assert "run the model once more" in run("added", query, passes=False, **options)
        run("added", query, **options)
        assert self.ids(sql, "added") == [1, 2]

    def test_the_files_of_another_table_are_in_the_way(self, run: Any, sql: Any, project: Any) -> None:
        run("shared", "select id from range(1, 3)", materialized="table")
        sql("alter table {schema}.shared rename to {schema}.renamed")
        options = {"materialized": "table", "file_format": "parquet", "passes": False}
        message = run("shared", "select id from range(1, 5)", **options)
        assert f"{project.test_schema}.renamed has its files in" in message
        assert self.ids(sql, "renamed") == [1, 2]

    @pytest.mark.exhaustive
    def test_what_killed_runs_leave_is_not_in_the_way(self, run: Any, sql: Any, directory: Path) -> None:
        options = {"materialized": "table", "file_format": "parquet"}
        for last, name in ((2, "killed"), (3, "killed__dbt_tmp")):
            (directory / name).mkdir()
            (directory / name / "part-0.parquet").touch()
            run("killed", f"select id from range(1, {last})", **options)
            assert self.ids(sql, "killed") == list(range(1, last))
            assert len(list(directory.glob(f"{name}.*"))) == 1
        sql("create table {schema}.killed__dbt_tmp using parquet as select 7 as id")
        run("killed", "select id from range(1, 4)", **options)
        assert self.ids(sql, "killed") == [1, 2, 3]

    def test_files_at_a_location_of_ones_own_are_refused(self, run: Any, sql: Any, spark: Any, tmp_path: Path) -> None:
        options = {"materialized": "table", "file_format": "parquet", "location_root": str(tmp_path)}
        run("placed", "select id from range(1, 3)", **options)
        message = run("placed", "select id from range(1, 5)", passes=False, **options)
        assert "the files of the present one stay in" in message
        assert self.ids(sql, "placed") == [1, 2]
        setting = "spark.sql.legacy.allowNonEmptyLocationInCTAS"
        assert setting in message
        with spark_settings(spark, {setting: "true"}):
            run("placed", "select id from range(1, 5)", **options)
        assert self.ids(sql, "placed") == [1, 2, 3, 4]
        options["file_format"] = "iceberg"
        late = "select cast(raise_error('late') as int) as id from range(1, 5)"
        assert "late" in run("placed", late, passes=False, **options)
        assert self.ids(sql, "placed") == [1, 2, 3, 4]
        run("placed", "select id from range(1, 4)", **options)
        assert self.ids(sql, "placed") == [1, 2, 3]

    def test_a_key_for_a_table_that_is_not_iceberg(self, run: Any, sql: Any) -> None:
        options = {"materialized": "incremental", "file_format": "parquet"}
        run("parquet_yet", "select id from range(1, 3)", **options)
        options["file_format"] = "iceberg"
        message = run("parquet_yet", "select id from range(3, 5)", cluster_by="id", passes=False, **options)
        assert "is a table of parquet: run once with --full-refresh" in message
        assert self.ids(sql, "parquet_yet") == [1, 2]
