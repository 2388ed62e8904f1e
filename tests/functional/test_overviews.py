"""clustering_overview: verdicts, totals, money and the gate; and the metrics file, which has its figures."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from clustered_models import run_load
from dbt.tests.util import run_dbt, run_dbt_and_capture, write_file
from dbt_common.exceptions import EventCompilationError
from operations import EVENTS, PLAIN, Operations, load_once, operate, operate_json

from dbt_recluster.api import ClusteredTable, suspend_recluster
from dbt_recluster.iceberg.iceberg_table import IcebergTable
from dbt_recluster.iceberg.table_properties import FAILURE

THREE = "table: [deep, well, paused]"


AUTOMATIC = EVENTS.replace(", automatic_clustering=false", "")


class TestOverview(Operations):
    LOADS = 6
    MODELS = {
        **dict.fromkeys(("deep.sql", "paused.sql", "broken.sql"), AUTOMATIC),
        "waits.sql": AUTOMATIC.replace("block_rows", "recluster_after={'commits': 9}, block_rows"),
        "well.sql": EVENTS.replace("cluster_by='k'", "cluster_by='id'"),
        "plain.sql": PLAIN,
    }

    @pytest.fixture(scope="class", autouse=True)
    def loaded(self, project: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DBT_RECLUSTER_AUTOMATIC_CLUSTERING", "false")
            for load in range(self.LOADS):
                load_once(load)

    @pytest.fixture(scope="class", autouse=True)
    def states(self, project: Any, loaded: None, spark: Any) -> None:
        suspend_recluster(spark, f"{project.test_schema}.paused")
        project.run_sql(f"alter table {project.test_schema}.broken rename column k to other")

    def test_the_overview_lists_the_worst_tables_first(self, project: Any) -> None:
        schema = project.test_schema
        log = operate("clustering_overview", passes=False)
        lines = [line.split() for line in log.splitlines() if line.strip().startswith(schema)]
        found = {words[0]: " ".join(words[1:]) for words in lines if not words[0].endswith(":")}
        assert list(found) == [f"{schema}.{name}" for name in ("broken", "deep", "waits", "paused", "well")]
        assert found[f"{schema}.deep"].startswith("deep 6.0 4 ")
        assert found[f"{schema}.well"].startswith("well clustered 1.0 4 ")
        assert "5 tables: 1 failing, 1 deep, 1 waiting, 1 suspended, 1 well clustered" in log
        assert f"{schema}.paused: suspended since " in log
        assert f"{schema}.broken: cluster_by item k: " in log
        # what cannot be read may be anything, so it fails after all others are shown
        assert log.index("total") < log.rindex("there is no column 'k'")

    def test_a_table_waits_in_every_answer_until_its_condition_is_met(self, project: Any, tmp_path: Path) -> None:
        """What keeps a build from reclustering it is said, and what a recluster by hand would do."""
        file, why = tmp_path / "r.prom", "no condition met: 6 of 9 commits; next recluster after 3 more commits"
        name, arguments = f"{project.test_schema}.waits", "{table: waits, format: json}"
        found = operate_json("clustering_information", arguments)
        assert (found["verdict"], found["depth"], found["reason"]) == ("waiting", 6, why)
        assert f"6.0, above 4, waiting: {why}\n" in operate("clustering_information", "{table: waits}")
        planned = operate_json("recluster", "{table: waits, dry_run: true, format: json}")
        assert (planned["verdict"], planned["held"], len(planned["plan"]["sets"])) == ("waiting", why, 1)
        line = f"{name}: a build would recluster nothing now: {why}; by hand, it would recluster 6 blocks"
        assert line in operate("recluster", "{table: waits, dry_run: true}")
        line = f"{project.test_schema}.paused: a build would recluster nothing now: suspended since "
        assert line in operate("recluster", "{table: paused, dry_run: true}")
        operate("clustering_overview", f"{{table: waits, metrics: {file}, fail_on: [deep]}}")
        assert f'dbt_recluster_table_verdict{{table="{name}",verdict="waiting"}} 1.0' in file.read_text()
        operate("clustering_report", "{table: waits}")
        assert why in (Path(project.project_root) / "target/clustering_report.html").read_text()
        text = (Path(project.project_root) / "models/waits.sql").read_text()
        write_file(text.replace("9}", "6}"), project.project_root, "models", "waits.sql")
        assert operate_json("clustering_information", arguments)["verdict"] == "deep"
        write_file(text, project.project_root, "models", "waits.sql")

    def test_the_json_has_figures_and_totals(self, sql: Any) -> None:
        found = operate_json("clustering_overview", "{table: [deep, well, paused, plain], format: json}")
        by_verdict = {table["verdict"]: table for table in found["tables"]}
        assert list(by_verdict) == ["deep", "suspended", "unclustered", "well clustered"]
        deep, size = by_verdict["deep"], sql("select sum(file_size_in_bytes) from {schema}.deep.files")[0][0]
        assert (deep["average_depth"], deep["threshold"], deep["cluster_key"]) == (6, 4, "k")
        assert (deep["loaded_bytes_day"], deep["loaded_bytes_week"], deep["bytes"]) == (size, size, size)
        assert (deep["last_recluster"], deep["conflicts"], deep["rewritten_bytes_week"]) == (None, 0, 0)
        assert deep["recluster_bytes"] == size
        assert deep["gain_per_gigabyte"] > 0
        assert by_verdict["well clustered"]["recluster_bytes"] == 0
        assert found["totals"]["tables"] == 4
        assert found["totals"]["bytes"] == sum(table["bytes"] for table in found["tables"])

    def test_metrics_are_written_also_if_the_gate_fails(self, project: Any, tmp_path: Path) -> None:
        """The file of Prometheus' has what the overview shows, also where the gate fails."""
        file, schema = tmp_path / "recluster.prom", project.test_schema
        gate = f"{THREE}, fail_on: 'deep,failing', metrics: {file}"
        log = operate("clustering_overview", f"{{{gate}}}", passes=False)
        assert f"{schema}.deep is deep" in log
        assert "failing" not in log
        lines = file.read_text().splitlines()
        assert f'dbt_recluster_table_depth{{table="{schema}.deep"}} 6.0' in lines
        assert f'dbt_recluster_table_verdict{{table="{schema}.paused",verdict="suspended"}} 1.0' in lines
        operate("clustering_overview", f"{{{THREE}, fail_on: [failing]}}")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                "fail_on: 'deep, shallow'",
                "fail_on must be verdicts, separated by commas, of failing, missing, deep, ",
            ),
            ("by: team", "by must be tag, group or owner, not 'team'"),
        ],
    )
    def test_bad_input_is_refused_before_anything_runs(self, arguments: str, message: str) -> None:
        log = operate("clustering_overview", f"{{{arguments}}}", passes=False)
        assert message in log
        assert "total" not in log

    def test_a_table_that_was_dropped_is_missing(self, project: Any, sql: Any) -> None:
        sql("drop table {schema}.paused")
        log = operate("clustering_overview", "{fail_on: missing}", passes=False)
        assert f"{project.test_schema}.paused is missing" in log
        assert f"  {project.test_schema}.paused: not built yet" in log
        assert "1 missing" in log


READ = EVENTS.replace(
    "cluster_by='k'",
    "cluster_by='k', recluster_reads=[{'where': 'k = 500', 'weight': 1000}], tags=['sales', 'hourly'], group='finance'",
)
OTHER = EVENTS.replace("cluster_by='k'", "cluster_by='k', tags=['sales'], meta={'owner': 'Bob'}")
GROUPS = "groups: [{name: finance, owner: {name: Ann, email: ann@example.com}}]"


class TestMoney(Operations):
    MODELS = {"read.sql": READ, "other.sql": OTHER, "groups.yml": GROUPS}

    PRICES = {"currency": "EUR", "compute_hour": 3600, "terabyte_scanned": 2**20}
    PROJECT_CONFIG_UPDATE = {"vars": {"recluster_prices": PRICES}}

    @pytest.fixture(scope="class", autouse=True)
    def reclustered(self, loaded: None) -> None:
        operate("recluster", "{table: read, depth: 1}")

    def test_the_overview_by_tag_sums_what_was_spent_and_saved(self) -> None:
        found = operate_json("clustering_overview", "{by: tag, format: json}")
        by_name = {row["table"].split(".")[-1]: row for row in found["tables"]}
        read, other = by_name["read"], by_name["other"]
        assert read["spent_week"] == read["recluster_seconds"] > 0  # at a unit of money for each second
        assert read["saved_week"] > 0
        assert (other["spent_week"], other["saved_week"]) == (0, None)  # no reads of it are known
        assert read["labels"] == {"tag": ["sales", "hourly"], "group": ["finance"], "owner": ["Ann"]}
        assert other["labels"] == {"tag": ["sales"], "group": [], "owner": ["Bob"]}
        totals = found["totals"]
        assert {tag: part["tables"] for tag, part in totals["by"].items()} == {"hourly": 1, "sales": 2}
        assert totals["by"]["hourly"]["spent_week"] == totals["spent_week"] == read["spent_week"]
        assert totals["saved_week"] == read["saved_week"]
        assert totals["assumption"].startswith("spent: EUR 3,600 an hour")
        text = operate("clustering_overview", "{by: owner}")
        assert "spent 7 d" in text
        assert f"EUR {read['spent_week']:,.2f}" in text
        rows = [line.split() for line in text.splitlines()]
        assert [row[0] for row in rows if row[:1] in (["Ann"], ["Bob"])] == ["Ann", "Bob"]
        assert "saved: EUR 1,048,576 for 2^40 bytes" in text

    def test_the_history_shows_what_was_spent(self) -> None:
        found = operate_json("clustering_history", "{table: read, format: json}")
        spent = [entry["spent"] for entry in found["entries"]]
        assert spent[:4] == [None] * 4
        assert found["spent"] == pytest.approx(sum(spent[4:]))
        assert found["spent"] > 0
        told = f"in all EUR {found['spent']:,.2f}; spent: EUR 3,600 an hour"
        assert told in operate("clustering_history", "{table: read}")

    def test_the_estimate_and_the_report_are_in_money(self, project: Any) -> None:
        found = operate_json("estimate_clustering_cost", "{table: read, format: json}")
        assert found["spent_per_day"] == pytest.approx(found["actual_seconds_per_day"])
        assert found["saved_per_day"] == pytest.approx(found["saved_bytes_per_day"] / 2**20, abs=1e-6)
        assert found["cost_per_day"] == pytest.approx(found["seconds_per_day"])
        assert "in fact EUR " in operate("estimate_clustering_cost", "{table: read}")
        operate("clustering_report", "{table: read}")
        page = (Path(project.project_root) / "target/clustering_report.html").read_text()
        assert page.count("EUR ") >= 6  # the row of the index, the facts, and what they assume


RECLUSTERED = EVENTS.replace("automatic_clustering=false", "recluster_depth=1").replace("500", "100")


class TestMetricsFile(Operations):
    LOADS = 1
    MODELS = {"events.sql": RECLUSTERED, "plain.sql": PLAIN}

    def test_a_run_and_an_operation_write_their_tables(self, table: str, tmp_path: Path) -> None:
        file = tmp_path / "r.prom"
        well_clustered = f'dbt_recluster_table_verdict{{table="{table}",verdict="well clustered"}} 1.0'
        run_dbt(["run", *variables(1, file)])
        text = file.read_text()
        assert well_clustered in text
        assert f'dbt_recluster_table_recluster_seconds{{period="7d",table="{table}"}} 0.0' not in text
        assert ".plain" not in text
        operate("suspend_recluster", "{table: events}", more=variables(1, file))
        assert 'verdict="suspended"} 1.0' in file.read_text()
        operate("resume_recluster", f"{{table: events, metrics: {file}}}")
        assert well_clustered in file.read_text()

    def test_each_run_merges_what_it_builds_and_what_it_fails_to_build(
        self, project: Any, sql: Any, tmp_path: Path
    ) -> None:
        file = tmp_path / "r.prom"

        def verdicts(*command: str, passes: bool = True) -> dict[str, str]:
            run_dbt(list(command), expect_pass=passes)
            verdicts = re.findall(r'verdict\{table="\w+\.(\w+)",verdict="([\w ]+)"\} 1\.0', file.read_text())
            return dict(verdicts)

        def measured(name: str) -> str:
            return re.findall(rf'measured\w+\{{table="\w+\.{name}"\}} (\S+)', file.read_text())[0]

        write_file(RECLUSTERED, project.project_root, "models", "other.sql")
        well, both = "well clustered", dict.fromkeys(("events", "other"), "well clustered")
        assert verdicts("run", *variables(2, file)) == both
        before = measured("other")
        assert verdicts("run", "--select", "events", *variables(3, file)) == both
        assert measured("other") == before < measured("events")
        off = json.dumps({"load": 4, "recluster_metrics_file": str(file), "automatic_clustering": False})
        assert verdicts("run", "--vars", off) == dict.fromkeys(both, "waiting")
        write_file(RECLUSTERED.replace("'k'", "'typo'"), project.project_root, "models", "other.sql")
        assert verdicts("run", *variables(5, file), passes=False) == {"events": well, "other": "failing"}
        assert re.search(r'failure_info\{reason="cluster_by item typo: there is no column', file.read_text())
        sql("drop table {schema}.events")
        write_file(RECLUSTERED, project.project_root, "models", "unbuilt.sql")
        missing = {"events": "missing", "other": "failing", "unbuilt": "missing"}
        assert verdicts("run-operation", "recluster", *variables(5, file), passes=False) == missing
        for name in ("other", "unbuilt"):
            (Path(project.project_root) / f"models/{name}.sql").unlink()
        budget = json.dumps({"load": 6, "recluster_metrics_file": str(file), "recluster_max_bytes": 1})
        assert verdicts("run-operation", "recluster", "--vars", budget) == {"events": "missing"}
        assert verdicts("run", *variables(6, file)) == {"events": well}

    @pytest.mark.thorough
    def test_what_cannot_be_written_is_known_before_or_a_warning_after(self, sql: Any, tmp_path: Path) -> None:
        before = sql("select count(*) from {schema}.events")[0][0]
        for file, passes, message in (
            (
                tmp_path / "no" / "r.prom",
                False,
                "recluster_metrics_file must be a file, or a new name in a directory that",
            ),
            (Path("/proc/recluster.prom"), True, "/proc/recluster.prom cannot be written"),
        ):
            assert message in run_dbt_and_capture(["run", *variables(7, file)], expect_pass=passes)[1]
            assert sql("select count(*) from {schema}.events")[0][0] == before + 1000 * passes
        written = Path("target/run_results.json").stat().st_mtime_ns
        with pytest.raises(EventCompilationError, match="cannot be written"):
            run_dbt(["--warn-error", "run", *variables(8, file)])
        assert Path("target/run_results.json").stat().st_mtime_ns > written


class TestPackagesOfDbt(Operations):
    """A var of a package is for its own models."""

    MODELS = {"events.sql": RECLUSTERED.replace("block_rows", "recluster_max_bytes=1, block_rows")}
    LOADS = 0

    @pytest.fixture(scope="class")
    def project_config_update(self) -> Any:
        return {"vars": {"pack": {"automatic_clustering": False}}}

    @pytest.fixture(scope="class")
    def packages(self) -> Any:
        return {"packages": [{"local": "pack"}]}

    def test_tables_are_measured_by_the_vars_of_their_package(self, project: Any, tmp_path: Path) -> None:
        pack, file = Path(project.project_root) / "pack", tmp_path / "r.prom"
        (pack / "models").mkdir(parents=True)
        (pack / "dbt_project.yml").write_text("{name: pack, version: 1.0.0, profile: test}")
        (pack / "models" / "packed.sql").write_text(self.MODELS["events.sql"])
        run_dbt(["deps"])
        for load in range(4):
            run_dbt(["run", *variables(load, file)])
        verdicts = re.findall(r'verdict\{table="\w+\.(\w+)",verdict="([\w ]+)"\} 1\.0', file.read_text())
        assert dict(verdicts) == {"events": "deep", "packed": "waiting"}


class TestFailedRecluster(Operations):
    """A merge that fails is a warning of dbt, on the model's line, and the table fails until one succeeds."""

    MODELS = {"events.sql": RECLUSTERED}
    LOADS = 1

    @pytest.mark.parametrize("is_recorded", [True, False])
    def test_the_verdict_is_failing_until_a_recluster_succeeds(
        self, project: Any, sql: Any, spark: Any, table: str, is_recorded: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lost = [Path(file.removeprefix("file:")) for (file,) in sql("select file_path from {schema}.events.files")]
        for file in lost:
            file.rename(f"{file}.lost")
        with monkeypatch.context() as patch:
            if not is_recorded:  # the table cannot be changed
                patch.setattr(IcebergTable, "set_property", None)
            (result,), log = run_load(1)
        assert result.status == "warn"
        assert "WARN=1" in log
        assert re.search(r"OK created .*\[.*OK \(recluster FAILED: Blocks of .* could not be merged: .*\)", log)
        assert result.adapter_response["verdict"] == "failing"
        assert result.adapter_response["recluster_reason"].startswith(f"Blocks of {table} could not be merged: ")
        assert (FAILURE in ClusteredTable(spark, table).iceberg.properties) == is_recorded
        log = operate("clustering_overview", passes=False)
        assert "1 table: 1 failing" in log
        assert f"  {table}: the last recluster failed: Blocks of {table} could not be merged: " in log
        assert f"{table} is failing" in log
        operate("recluster", "{dry_run: true}")
        found = operate_json("clustering_information", "{table: events, format: json}")
        assert (found["verdict"], found["threshold"]) == ("failing", 1)
        for file in lost:
            Path(f"{file}.lost").rename(file)
        run_dbt(["run", "--vars", '{"load": 2}', "--warn-error"])
        assert "1 table: 1 well clustered" in operate("clustering_overview")
        assert FAILURE not in ClusteredTable(spark, table).iceberg.properties


def variables(load: int, file: Path) -> tuple[str, str]:
    return "--vars", json.dumps({"load": load, "recluster_metrics_file": str(file)})
