"""dbt's files as data, and the selection of nodes without dbt."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dbt_recluster.exceptions import ManifestError, OptionError
from dbt_recluster.job.manifest import Manifest
from dbt_recluster.operations.tables import relation_of

SCHEMA = "https://schemas.getdbt.com/dbt/manifest/v12.json"


def node(name: str, kind: str = "model", **more: Any) -> dict[str, Any]:
    folder = more.pop("folder", "marts")
    config = {"materialized": "table", "tags": more.get("tags", []), **more.pop("config", {})}
    return {
        "unique_id": f"{kind}.shop.{name}",
        "resource_type": kind,
        "name": name,
        "alias": name,
        "database": "awsdatacatalog",
        "schema": "sales",
        "package_name": "shop",
        "fqn": ["shop", folder, name],
        "original_file_path": f"{kind}s/{folder}/{name}.sql",
        "depends_on": {"nodes": []},
        **more,
        "config": config,
    }


def write(path: Path, nodes: list[dict[str, Any]], schema: str = SCHEMA, **metadata: Any) -> Path:
    known = {"dbt_schema_version": schema, "generated_at": "2026-01-02T00:00:00Z", **metadata}
    path.write_text(json.dumps({"metadata": known, "nodes": {each["unique_id"]: each for each in nodes}}))
    return path


def results(path: Path, statuses: dict[str, str], at: str = "2026-01-02T00:01:00Z", **args: Any) -> Path:
    schema = "https://schemas.getdbt.com/dbt/run-results/v6.json"
    rows = [{"unique_id": name, "status": status} for name, status in statuses.items()]
    metadata = {"dbt_schema_version": schema, "generated_at": at}
    path.write_text(json.dumps({"metadata": metadata, "results": rows, "args": args}))
    return path


NODES = [
    node("orders", config={"cluster_by": "id"}),
    node("daily", folder="reports"),
    node("a_view", config={"materialized": "view"}),
    node("codes", "seed", config={"materialized": None}),
    node("orders", "test"),
    node("daily", unique_id="model.tools.daily", alias="tools_daily"),
    *(
        node("ver", unique_id=f"model.shop.ver.v{version}", alias=f"ver_v{version}", version=version)
        for version in (1, 2)
    ),
]


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return Manifest.read(write(tmp_path / "manifest.json", NODES))


def test_names_in_spark(tmp_path: Path) -> None:
    path = write(tmp_path / "manifest.json", NODES)

    def relation(**place: Any) -> tuple[str, ...]:
        return relation_of(Manifest.read(path, **place).nodes["model.shop.orders"])

    assert relation() == ("awsdatacatalog", "sales", "orders")
    assert (
        relation(catalog="lake")
        == relation(renamed={"awsdatacatalog": "lake"})
        == ("lake", "sales", "orders")
    )
    with pytest.raises(OptionError, match=r"--map awsdatacatalogue: no .* did you mean awsdatacatalog\?"):
        relation(renamed={"awsdatacatalog": "lake", "awsdatacatalogue": "lake"})


def test_what_a_run_built(tmp_path: Path, manifest: Manifest) -> None:
    statuses = {"model.shop.orders": "success", "model.shop.daily": "error", "test.shop.gone": "pass"}
    assert manifest.built(results(tmp_path / "run_results.json", statuses)) == {"model.shop.orders"}
    assert manifest.built(results(tmp_path / "run_results.json", {})) == set()
    for command in ("build", "run", "seed", "snapshot"):
        path = results(tmp_path / "run_results.json", statuses, which=command, empty=False)
        assert manifest.built(path) == {"model.shop.orders"}
        path = results(tmp_path / "run_results.json", statuses, which=command, empty=True)
        assert manifest.built(path) == set()
    path = results(tmp_path / "run_results.json", statuses, which="generate")
    with pytest.raises(ManifestError, match="is of dbt's command generate, which builds no table"):
        manifest.built(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not the manifest of dbt, or only a part of it"),
        ('{"metadata": {"dbt_schema_version"', "is not the manifest of dbt, or only a part of it"),
        ("[" * 100_000, "is not the manifest of dbt, or only a part of it"),
        ("[]", "it has no metadata"),
        ('{"metadata": {}}', "its schema is None"),
        (
            json.dumps({"metadata": {"dbt_schema_version": SCHEMA.replace("manifest", "catalog")}}),
            "its schema is",
        ),
        (
            json.dumps({"metadata": {"dbt_schema_version": SCHEMA.replace("v12", "v8")}}),
            "v9 or later is needed",
        ),
        (
            json.dumps({"metadata": {"dbt_schema_version": SCHEMA.replace("v12", "v20")}, "models": []}),
            r"has no nodes: it is not a manifest.json that can be read here \(.*v20.json\)",
        ),
        (
            json.dumps({"metadata": {"dbt_schema_version": SCHEMA}, "nodes": {"model.a.b": 7}}),
            "has no config",
        ),
    ],
)
def test_what_is_no_manifest(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(text)
    with pytest.raises(ManifestError, match=message):
        Manifest.read(path)


def test_files_that_are_not_there_or_do_not_belong_together(tmp_path: Path, manifest: Manifest) -> None:
    with pytest.raises(ManifestError, match="cannot be read: No such file"):
        Manifest.read(tmp_path / "missing.json")
    with pytest.raises(ManifestError, match="they have no node in common"):
        manifest.built(results(tmp_path / "run_results.json", {"model.other.a": "success"}))
    old = results(tmp_path / "run_results.json", {"model.shop.orders": "success"}, at="2026-01-01T00:00:00Z")
    with pytest.raises(ManifestError, match="it is not of the last run"):
        manifest.built(old)
    with pytest.raises(ManifestError, match="its schema is"):
        manifest.built(tmp_path / "manifest.json")


def test_a_later_schema_is_read_as_far_as_it_is_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "manifest.json", NODES, SCHEMA.replace("v12", "v13"), news={"a": 1})
    assert set(Manifest.read(path).nodes) == {each["unique_id"] for each in NODES}


@pytest.mark.usefixtures("manifest")
def test_files_that_spark_submit_has_put_into_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Manifest.read(Path("/not/here/target/manifest.json")).nodes


READ = """
import resource, sys, time
from pathlib import Path
from dbt_recluster.job.manifest import Manifest
from dbt_recluster.operations.tables import has_table, target_of
began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
nodes = Manifest.read(Path(sys.argv[1])).nodes
targets = [target_of(node) for node in nodes.values() if has_table(node)]
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert "dbt" not in sys.modules
print(len(targets), time.process_time() - began, memory / 1e3)
"""


@pytest.mark.parametrize(
    ("characters", "megabytes"),
    [(1000, 12), pytest.param(20_000, 200, marks=pytest.mark.exhaustive)],
)
def test_five_thousand_nodes(tmp_path: Path, characters: int, megabytes: int) -> None:
    """They take less than two seconds, and twice the memory of the file and what Python's objects take."""
    code = {"compiled_code": "x" * characters, "raw_code": "y" * characters, "cluster_by": "id"}
    path = write(tmp_path / "manifest.json", [node(f"m{i}", **code) for i in range(5000)])
    assert path.stat().st_size > megabytes * 1e6
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    count, seconds, memory = map(float, done.stdout.split())
    assert count == 5000
    assert seconds < 2
    assert memory < 2 * megabytes + 80


def test_two_nodes_with_one_table(tmp_path: Path) -> None:
    path = write(tmp_path / "manifest.json", [node("a", alias="t"), node("b", alias="t")])
    with pytest.raises(ManifestError, match=r"model\.shop\.a and model\.shop\.b have one table"):
        Manifest.read(path)
    views = [node("a", alias="t"), node("b", alias="t", config={"materialized": "view"})]
    assert len(Manifest.read(write(path, views)).nodes) == 2


def test_queries_are_those_of_the_readers_through_views(tmp_path: Path) -> None:
    """A view that only tests read is one of them: people outside the project run its query."""
    reads, of_view = {"depends_on": {"nodes": ["model.shop.orders"]}}, {"nodes": ["model.shop.v"]}
    nodes = [
        *NODES[:1],
        node("v", config={"materialized": "view"}, compiled_code="select * from orders", **reads),
        node("report", compiled_code="select 1 from v", depends_on=of_view),
        node("late", **reads),
        node("an", "analysis", config={"materialized": "view"}, compiled_code="select 2", **reads),
        node("other", compiled_code="select 3"),
        node("shown", config={"materialized": "view"}, compiled_code="select 5 from v", depends_on=of_view),
        node(
            "inlined",
            config={"materialized": "ephemeral"},
            compiled_code="select 6 from v",
            depends_on=of_view,
        ),
        node("unique", "test", compiled_code="select 7", depends_on={"nodes": ["model.shop.shown"]}),
    ]
    compiled = tmp_path / "target" / "compiled" / "shop" / "models" / "marts"
    compiled.mkdir(parents=True)
    (compiled / "late.sql").write_text("select 4 from orders")
    manifest = Manifest.read(write(tmp_path / "target" / "manifest.json", nodes))
    assert manifest.queries("model.shop.orders") == {
        "analysis.shop.an": "select 2",
        "model.shop.late": "select 4 from orders",
        "model.shop.report": "select 1 from v",
        "model.shop.shown": "select 5 from v",
        "test.shop.unique": "select 7",
    }


LISTED = ["model.shop.daily", "model.shop.a_view", "test.shop.unique", "source.shop.a.b", "model.shop.daily"]


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["orders", "codes", "ver.v1"], {"model.shop.orders", "seed.shop.codes", "model.shop.ver.v1"}),
        (["model.shop.daily", "tools_daily"], {"model.shop.daily", "model.tools.daily"}),
        (["model.shop.ver.v2", "ver_v1"], {"model.shop.ver.v1", "model.shop.ver.v2"}),
        (["-", "orders"], {*LISTED[:2], "model.shop.orders"}),
    ],
)
def test_names_unique_ids_and_the_lines_of_dbt_ls(
    manifest: Manifest, words: list[str], ids: set[str]
) -> None:
    lines = [*(json.dumps({"unique_id": each, "name": "x"}) + "\n" for each in LISTED), "\n"]
    assert manifest.selected(words, lines) == ids


@pytest.mark.parametrize(
    ("words", "lines", "message"),
    [
        (["orders", "+orders"], (), r"dbt --quiet ls --select '\+orders' --output json"),
        (["tag:hourly"], (), "tag:hourly is a selector"),
        (["order*"], (), "is a selector"),
        (
            ["orders", "model.shop.nothing"],
            (),
            "is no model, seed or snapshot of this project with a table; there are ",
        ),
        (["-"], ["12:00:01  Running with dbt=1.11.16"], "is not what dbt --quiet ls --output json prints"),
        (["-"], ["orders"], "is not what dbt --quiet ls --output json prints"),
        (["-"], ["{broken"], "is not what dbt --quiet ls --output json prints"),
        (["-"], ['{"name": "orders"}'], "is not what dbt --quiet ls --output json prints"),
        (["-"], ["\n"], "standard input is empty: dbt ls selects nothing, or has failed"),
        (
            ["-"],
            ['{"unique_id": "model.shop.new"}'],
            r"manifest\.json has no model\.shop\.new, which dbt ls lists",
        ),
    ],
)
def test_wrong_selections(manifest: Manifest, words: list[str], lines: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        manifest.selected(words, lines)
