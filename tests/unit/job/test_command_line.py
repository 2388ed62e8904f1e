import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dbt_recluster.api import OPERATIONS
from dbt_recluster.job.command_line import main, parse
from dbt_recluster.operations.declaration import Operation


def test_the_options_of_recluster_are_parsed() -> None:
    line = """recluster lake.sales.orders --cluster-by 'to_date(ts), id' --final --dry-run --max-bytes '10 GB' --depth 2
        --where "ts > date'2026-01-01'" --strategy peak --block-rows 500 --json --conf spark.a=b=c --conf spark.d="""
    request = parse(shlex.split(line))
    assert request.tables == ("lake.sales.orders",)
    given = {name: value for name, value in request.arguments.items() if value is not None}
    assert str(given.pop("cluster_by")) == "days(ts), id"
    assert given == {
        "table": ["lake.sales.orders"],
        "final": True,
        "where": "ts > date'2026-01-01'",
        "max_bytes": 10 * 2**30,
        "depth": 2.0,
        "strategy": "peak",
        "block_rows": 500,
        "dry_run": True,
    }
    assert request.conf == {"spark.a": "b=c", "spark.d": ""}
    assert request.json
    # Options that are not given are left to the table.
    arguments = parse(["recluster", "--namespace", "lake.sales"]).arguments
    assert {name for name, value in arguments.items() if value is not None} == {"dry_run"}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_every_operation_has_its_names_and_help(operation: Operation, capsys: pytest.CaptureFixture[str]) -> None:
    for name in filter(None, (operation.name.replace("_", "-"), operation.short)):
        request = parse([name, "a.b"])
        assert (request.command, request.operation) == (name, operation)
        assert set(request.arguments) == {"table", *(argument.name for argument in operation.arguments)}
        with pytest.raises(SystemExit) as stop:
            parse([name, "--help"])
        assert stop.value.code == 0
        out = capsys.readouterr().out
        assert out.startswith(f"Usage: dbt-recluster {name} [OPTIONS] [TABLE]...")
        assert "--catalog NAME" in out


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("suggest a.b --queries k=1 --queries v>2", "queries", ["k=1", "v>2"]),
        ("remove-orphan-files a.b", "dry_run", True),
        ("remove-orphan-files a.b --no-dry-run", "dry_run", False),
        ("expire-snapshots a.b --retain-last 3", "retain_last", 3),
        ("recluster a.b --no-final", "final", False),
        ("suspend a.b a.c a.b", "table", ["a.b", "a.c"]),
    ],
)
def test_each_argument_becomes_its_kind(line: str, name: str, value: object) -> None:
    assert parse(line.split()).arguments[name] == value


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("compact a.b", "dbt-recluster: No such command 'compact'"),
        ("recluster", "recluster needs one or more tables, or --namespace, or --catalog, or --manifest"),
        ("recluster a.b --select x", "--select, --run-results and --map are for --manifest"),
        ("recluster --manifest m --namespace n", "two ways to choose tables; give one of them"),
        ("recluster --manifest m --catalog c --map a=b", "leaves nothing to --map"),
        ("recluster --manifest m t --run-results x", "name tables, or choose them by --run-results"),
        ("suspend --manifest m", "suspend needs tables, or --select, or --run-results beside --manifest"),
        ("recluster a.b a.c --cluster-by k", "cluster_by is for a single table: name it"),
        ("recluster a.b --cluster-by upper(k)", "dbt-recluster recluster: cluster_by item 'upper(k)' is not"),
        ("recluster a.b --conf spark.master", "Invalid value for '--conf': it must be NAME=VALUE (see"),
        ("recluster a.b --properties-file no.conf", "--properties-file: there is no file no.conf"),
        (
            f"recluster a.b --lake lake --properties-file {__file__}",
            "leave out spark-submit and --properties-file",
        ),
        ("suspend foo-a.b", "dbt-recluster suspend: 'foo-a.b' is not the name of a table"),
        ("maintain --namespace a.*", "'a.*' is not the name of a namespace"),
        ("recluster a.b --every 0", "--every must be a whole number above 0 with a unit, such as 30s, 5m"),
        ("recluster a.b --every x", "5m or 1h, not 'x'"),
        ("recluster a.b --lake lake --every 5m", "--lake is for one process at a time"),
        ("information a.b --every 5m", "dbt-recluster information: No such option"),
        ("recluster a.b --fin", "--final"),
        ("recluster a.b --max-bytes", "dbt-recluster recluster: Option '--max-bytes' requires an argument"),
        ("recluster a.b --metrics --final", "Invalid value for '--metrics': --final is an option"),
        ("job s3://bob:0pen-5esame@h", "Got unexpected extra argument (s3://bob:*****@h)"),
        ("recluster a.b -u bob:0pen-5esame", "No such option"),
        ("information a.b --conf password:0pen-5esame", "Invalid value for '--conf': it must be NAME=VALUE"),
    ],
)
def test_wrong_usage_is_one_line_without_secrets(line: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse(line.split())
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines()), "0pen-5esame" in err) == ("", 1, False)
    assert err.startswith("dbt-recluster")
    assert error in err


def test_wrong_usage_is_json_where_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("recluster --json", "recluster a.b --json --final=perhaps"):
        with pytest.raises(SystemExit) as stop:
            main(line.split())
        out, err = capsys.readouterr()
        answer = json.loads(out)
        assert (stop.value.code, answer["exit_code"], answer["tables"]) == (2, 2, [])
        assert answer["error"] in err


@pytest.mark.parametrize("select", ["--select a b", "--select a --select b", "a --select b"])
def test_select_takes_several_names(select: str) -> None:
    request = parse(["suspend", "--manifest", "m", *select.split()])
    assert (sorted(request.select), request.tables) == (["a", "b"], ())


def test_the_help_keeps_the_lines_of_its_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    assert "\n    dbt-recluster recluster analytics.events --lake lakehouse\n" in out
    assert "\n    3    all done, and clustering-overview found a verdict of --fail-on, or failing\n" in out
    names = [operation.name.replace("_", "-") for operation in OPERATIONS.values()]
    assert re.findall(r"^  ([\w-]+)  ", out.partition("Commands:")[2], re.MULTILINE) == [*names, "job"]


def test_job_prints_a_file_that_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["job"])
    assert stop.value.code == 0
    path = Path(capsys.readouterr().out.strip())
    done = subprocess.run([sys.executable, path, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: dbt-recluster")
