"""dbt's files as data, the selection of nodes without dbt, and compiled SQL with names that Spark understands."""

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from manifests import node, write_manifest, write_results

from dbt_recluster.exceptions import ManifestError, OptionError, ReclusterError
from dbt_recluster.job.manifest import Manifest
from dbt_recluster.names import NameResolution
from dbt_recluster.operations.targets import CLUSTERED, choose

SCHEMA = "https://schemas.getdbt.com/dbt/manifest/v12.json"
NAMES = NameResolution(lambda: "lake", lambda _: True, lambda *_: False)


NODES = [
    node("orders", config={"cluster_by": "id"}),
    node("daily"),
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
    return Manifest.read(write_manifest(tmp_path / "manifest.json", NODES))


def test_a_catalog_that_no_table_is_in_cannot_be_mapped(tmp_path: Path) -> None:
    path = write_manifest(tmp_path / "manifest.json", NODES)
    with pytest.raises(OptionError, match=r"--map awsdatacatalogue: no .* did you mean awsdatacatalog\?"):
        Manifest.read(path, renamed={"awsdatacatalog": "lake", "awsdatacatalogue": "lake"})


def test_only_the_catalog_knows_the_format_of_another_adapters_table(tmp_path: Path) -> None:
    configs = {
        "files": {"file_format": "parquet"},
        "of_hive": {"file_format": "delta", "table_type": "ICEBERG"},
        "delta": {"file_format": "delta"},
    }
    nodes = [node(name, config={"cluster_by": "id", **config}) for name, config in configs.items()]
    for adapter, clustered in (("spark", ["files", "of_hive"]), ("recluster", ["of_hive"])):
        path = write_manifest(tmp_path / "manifest.json", nodes, adapter_type=adapter)
        targets = CLUSTERED.targets(Manifest.read(path).nodes.values())
        assert [target.relation.rpartition(".")[2] for target in targets] == clustered


def test_run_results_say_which_tables_a_run_built(tmp_path: Path, manifest: Manifest) -> None:
    statuses = {"model.shop.orders": "success", "model.shop.daily": "error", "test.shop.gone": "pass"}
    path = tmp_path / "run_results.json"
    assert manifest.built(write_results(path, statuses)) == {"model.shop.orders"}
    assert manifest.built(write_results(path, {})) == set()
    for command in ("build", "run", "seed", "snapshot"):
        assert manifest.built(write_results(path, statuses, which=command, empty=False)) == {"model.shop.orders"}
        assert manifest.built(write_results(path, statuses, which=command, empty=True)) == set()
    with pytest.raises(ManifestError, match="is of dbt's command generate, which builds no table"):
        manifest.built(write_results(path, statuses, which="generate"))
    with pytest.raises(ManifestError, match="they have no node in common"):
        manifest.built(write_results(path, {"model.other.a": "success"}))
    with pytest.raises(ManifestError, match="it is not of the last run"):
        manifest.built(write_results(path, {"model.shop.orders": "success"}, at="2026-01-01T00:00:00Z"))
    with pytest.raises(ManifestError, match="its schema is"):
        manifest.built(tmp_path / "manifest.json")


def of_schema(schema: str, **content: Any) -> str:
    return json.dumps({"metadata": {"dbt_schema_version": schema}, **content})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"metadata": {"dbt_schema_version"', "is not the manifest of dbt, or only a part of it"),
        ("[" * 100_000, "is not the manifest of dbt, or only a part of it"),
        ("[]", "it has no metadata"),
        (of_schema(SCHEMA.replace("manifest", "catalog")), "its schema is"),
        (of_schema(SCHEMA.replace("v12", "v8")), "v9 or later is needed"),
        (of_schema(SCHEMA.replace("v12", "v20"), models=[]), r"has no nodes: .* read here \(.*v20.json\)"),
        (of_schema(SCHEMA, nodes={"model.a.b": 7}), "has no config"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_is_no_manifest_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "manifest.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ManifestError, match=message):
        Manifest.read(path)


@pytest.mark.parametrize("version", ["v12", "v20"])
def test_a_manifest_of_dbt_2_is_read(version: str, tmp_path: Path) -> None:
    """Its previews wrote version 20, its release writes 12 again; both have null for what is not set."""
    config = {"materialized": "incremental", "cluster_by": ["id"], "meta": None, "tags": None, "group": None}
    unset = dict.fromkeys(("group", "compiled_path", "compiled_code", "language", "patch_path", "tags", "meta"))
    nodes = [node("orders", config=config, **unset, columns={}, fqn=["shop", "orders"])]
    path = write_manifest(tmp_path / "manifest.json", nodes, version, dbt_version="2.0.0")
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "sources": None, "groups": {}, "functions": {}, "disabled": None}))
    (target,) = choose(Manifest.read(path).nodes.values(), None, NAMES)
    assert (target.relation, str(target.options.cluster_by)) == ("awsdatacatalog.sales.orders", "id")


@pytest.mark.usefixtures("manifest")
def test_a_file_that_spark_submit_has_copied_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Manifest.read(Path("/not/here/target/manifest.json")).nodes


def test_two_nodes_with_one_table_are_refused(tmp_path: Path) -> None:
    path = write_manifest(tmp_path / "manifest.json", [node("a", alias="t"), node("b", alias="t")])
    with pytest.raises(ManifestError, match=r"model\.shop\.a and model\.shop\.b have one table"):
        Manifest.read(path)
    views = [node("a", alias="t"), node("b", alias="t", config={"materialized": "view"})]
    assert len(Manifest.read(write_manifest(path, views)).nodes) == 2


def test_queries_are_those_of_the_readers_through_views(tmp_path: Path) -> None:
    """A view that only tests read is one of them: people outside the project run its query."""

    def reader(name: str, of: str, kind: str = "model", materialized: str = "table", **more: Any) -> Any:
        parents, config = {"nodes": [f"model.shop.{of}"]}, {"materialized": materialized}
        return node(name, kind, config=config, **{"compiled_code": name, "depends_on": parents, **more})

    nodes = [
        *NODES[:1],
        reader("v", "orders", materialized="view"),
        reader("report", "v"),
        reader("late", "orders", compiled_code=None),
        reader("an", "orders", "analysis", "view"),
        reader("other", "nothing"),
        reader("shown", "v", materialized="view"),
        reader("inlined", "v", materialized="ephemeral"),
        reader("unique", "shown", "test"),
    ]
    compiled = tmp_path / "target" / "compiled" / "shop" / "models"
    compiled.mkdir(parents=True)
    (compiled / "late.sql").write_text("SELECT 4 FROM orders")
    manifest = Manifest.read(write_manifest(tmp_path / "target" / "manifest.json", nodes))
    assert manifest.queries("model.shop.orders") == {
        "analysis.shop.an": "an",
        "model.shop.late": "SELECT 4 FROM orders",
        "model.shop.report": "report",
        "model.shop.shown": "shown",
        "test.shop.unique": "unique",
    }


LISTED = ["model.shop.daily", "model.shop.a_view", "test.shop.unique", "source.shop.a.b", "model.shop.daily"]


def test_a_selection_has_names_unique_ids_and_the_lines_of_dbt_ls(manifest: Manifest) -> None:
    lines = [*(json.dumps({"unique_id": each, "name": "x"}) + "\n" for each in LISTED), "\n"]
    listed = {"model.shop.orders", "model.shop.daily", "model.shop.a_view"}
    assert manifest.selected(["-", "orders"], lines) == listed
    named = {"seed.shop.codes", "model.shop.ver.v1", "model.shop.daily"}
    assert manifest.selected(["codes", "ver.v1", "model.shop.daily"], ()) == named


@pytest.mark.parametrize(
    ("words", "lines", "message"),
    [
        (["orders", "+orders"], (), r"dbt --quiet ls --select '\+orders' --output json"),
        (["-"], ["12:00:01  Running with dbt=1.11.16"], "is not what dbt --quiet ls --output json prints"),
        (["-"], ["{broken"], "is not what dbt --quiet ls --output json prints"),
        (["-"], ['{"name": "orders"}'], "is not what dbt --quiet ls --output json prints"),
        (["-"], ["\n"], "standard input is empty: dbt ls selects nothing, or has failed"),
        (["-"], ['{"unique_id": "model.shop.new"}'], r"json has no model\.shop\.new, which dbt ls lists"),
    ],
)
def test_a_wrong_selection_is_refused(manifest: Manifest, words: list[str], lines: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        manifest.selected(words, lines)


WHOLE = {
    "metadata": {"dbt_schema_version": SCHEMA},
    "nodes": {
        "model.shop.orders": node("orders", group="sales", tags=["daily"], config={"meta": {"owner": "Ann"}}),
        "model.shop.b": node("b", relation_name="b", depends_on={"nodes": ["model.shop.orders"]}, compiled_path="b"),
    },
    "sources": {"source.shop.s.t": {"name": "t", "identifier": "t", "schema": "s", "relation_name": "t"}},
    "groups": {"group.shop.sales": {"name": "sales", "package_name": "shop", "owner": {"name": "Bob"}}},
}


def places(values: Any, *above: str) -> Iterator[tuple[str, ...]]:
    """The places of all values of a JSON object."""
    for name, value in values.items() if isinstance(values, dict) else ():
        yield (*above, name)
        yield from places(value, *above, name)


@pytest.mark.parametrize("place", list(places(WHOLE)), ids="/".join)
def test_values_of_other_types_are_no_fault(place: tuple[str, ...], tmp_path: Path) -> None:
    """Other dbts write manifests too."""
    path, *above, last = tmp_path / "manifest.json", *place
    for value in (5, 1.5, True, None, "text", [], [1], [["a"]], [{}], {}, {"a": 1}):
        content = inner = copy.deepcopy(WHOLE)
        for name in above:
            inner = inner[name]
        inner[last] = value
        path.write_text(json.dumps(content))
        with suppress(ReclusterError):
            manifest = Manifest.read(path)
            for unique_id in manifest.nodes:
                manifest.queries(unique_id)
            choose(manifest.nodes.values(), ["orders", "s.orders"], NAMES)
