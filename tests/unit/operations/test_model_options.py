from __future__ import annotations

from typing import Any

import pytest

from dbt_recluster.adapter.dbt_run import RunVars
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.values import DeclaredRead, parse_bytes
from dbt_recluster.exceptions import ClusterKeyError, OptionError
from dbt_recluster.key.cluster_key import parse_cluster_key
from dbt_recluster.key.columns import Columns
from dbt_recluster.operations.tables import (
    CONFIGS,
    MODEL_OPTIONS,
    ModelOptions,
    recorded_key,
    unknown_names,
    unknown_properties,
)


def parse(**config: Any) -> ModelOptions:
    return ModelOptions.of_config(config)


def of_table(**options: str) -> ReclusterOptions:
    return ReclusterOptions.of_table({f"recluster.option.{name}": value for name, value in options.items()})


def test_defaults() -> None:
    assert parse() == ModelOptions()
    assert of_table() == ReclusterOptions()
    assert ModelOptions().automatic_clustering
    assert ModelOptions().recluster == ReclusterOptions()
    assert (ReclusterOptions().block_rows, ReclusterOptions().depth) == (1_000_000, None)
    assert (parse(cluster_by=[]), parse(recluster_depth=" Auto").recluster.depth) == (ModelOptions(), "auto")
    assert parse(recluster_depth=0.001).recluster.depth == 0.001


def test_every_key() -> None:
    config = parse(
        cluster_by=["to_date(ts)", "id"],
        automatic_clustering=False,
        recluster_depth=2.5,
        recluster_final=True,
        recluster_strategy="peak",
        recluster_max_bytes="1.5 GB",
        recluster_where="id > 3",
        recluster_reads=["id > 5", {"where": "id = 7", "weight": 3}],
        block_rows=1000,
        sort_on_load=False,
        materialized="table",
    )
    assert config == ModelOptions(
        cluster_by=parse_cluster_key(["days(ts)", "id"]),
        automatic_clustering=False,
        sort_on_load=False,
        recluster=ReclusterOptions(
            depth=2.5,
            final=True,
            strategy="peak",
            max_bytes=1536 * 2**20,
            where="id > 3",
            reads=(DeclaredRead("id > 5"), DeclaredRead("id = 7", 3.0)),
            block_rows=1000,
        ),
    )


def test_meta_means_the_same() -> None:
    options = {
        "cluster_by": ["to_date(ts)", "id"],
        "depth": 2.5,
        "final": True,
        "maintain": True,
        "block_rows": 9,
    }
    config = {"cluster_by": ["to_date(ts)", "id"], "block_rows": 9}
    assert parse(meta={"recluster": options}) == parse(
        **config, recluster_depth=2.5, recluster_final=True, recluster_maintain=True
    )
    assert parse(meta={"recluster": options}, **config) == parse(meta={"recluster": options})
    assert parse(meta={"owner": "sales"}) == parse(meta=None) == ModelOptions()
    assert parse(meta={"recluster": {"reads": "project"}}).records_reads


def test_meta_wins_over_the_configs_of_its_folder() -> None:
    folder = {"cluster_by": "day", "recluster_depth": 3}
    assert parse(**folder, meta={"recluster": {"cluster_by": "id"}}) == parse(
        cluster_by="id", recluster_depth=3
    )
    assert parse(**folder, meta={"recluster": {"cluster_by": []}}) == parse(recluster_depth=3)
    # Another target of the project may have a key of another kind.
    other = {"cluster_by": {"field": "day"}}
    assert parse(**other, meta={"recluster": {"cluster_by": "id"}}) == parse(cluster_by="id")


WRONG: dict[tuple[str, str], list[Any]] = {
    ("cluster_by", "cluster_by must be a string or a list"): [3],
    ("automatic_clustering", "automatic_clustering must be true or false, not 'maybe'"): ["maybe"],
    ("recluster_depth", "must be a number of at least 1"): ["deep", 0, -1, True, "nan", float("inf")],
    ("recluster_final", "recluster_final must be true or false"): [[]],
    ("recluster_strategy", "recluster_strategy must be one of .*peak.*, not"): ["best", []],
    ("recluster_max_merge_blocks", "recluster_max_merge_blocks must be a whole number above 1"): [1],
    ("recluster_max_bytes", "recluster_max_bytes must be a number of bytes above 0"): [
        "ten",
        0,
        -5,
        1.5,
        True,
    ],
    ("recluster_where", "recluster_where must be a SQL predicate"): [7, "  "],
    ("block_rows", "block_rows must be a whole number above 0, at most"): [0, 1.5, "nan", "many"],
    ("sort_on_load", "sort_on_load must be true or false"): [2],
    ("recluster_reads", "recluster_reads: a read must be a SQL predicate"): [7, [{"weight": 2}]],
    ("meta", r"meta\.recluster\.depth must be a number"): [{"recluster": {"depth": "deep"}}],
    ("meta", r"meta\.recluster must be a mapping of options"): [{"recluster": "id"}],
}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [(key, value, message) for (key, message), values in WRONG.items() for value in values],
)
def test_wrong_values_name_the_key_and_what_is_allowed(key: str, value: Any, message: str) -> None:
    with pytest.raises((OptionError, ClusterKeyError), match=message):
        parse(**{key: value})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("recluster_dept", "recluster_depth"),
        ("recluster_depht", "recluster_depth"),
        ("recluster_read", "recluster_reads"),
        ("recluster_block_rows", "block_rows"),
        ("recluster_cluster_by", "cluster_by"),
        ("recluster_sort_on_load", "sort_on_load"),
        ("recluster_automatic_clustering", "automatic_clustering"),
        ("recluster_maximum_bytes", "recluster_max_bytes"),
    ],
)
def test_a_config_that_is_none_of_ours_is_answered_with_the_one_that_is_meant(name: str, meant: str) -> None:
    """Our prefix is most of a name, and makes any two of them alike."""
    assert parse(**{name: 3}).unknown == (f"there is no config {name}; did you mean {meant}?",)
    option = CONFIGS[meant].name
    in_meta = f"there is no meta.recluster.{name}; did you mean {option}?"
    assert parse(meta={"recluster": {name: 3}}).unknown == (in_meta,)


def test_names_that_resemble_none_of_ours() -> None:
    unknown = (
        *parse(recluster_zzz=1).unknown,
        *parse(meta={"recluster": {"zzz": 2, "dept": 2}}).unknown,
    )
    assert [text.partition(" cluster_by, ")[0] for text in unknown] == [
        "there is no config recluster_zzz; there are",
        "there is no meta.recluster.zzz; there are",
        "there is no meta.recluster.dept; did you mean depth?",
    ]
    theirs = {"owner": "sales", "cluster": "eu-1", "re": 1, "recluster_owner": "sales"}
    assert parse(meta=theirs, clustered_by="id", max_bytes=1).unknown == ()


@pytest.mark.parametrize("name", ["reclustr", "reclsuter", "re_cluster", "Recluster", "reclusters"])
def test_a_misspelt_meta(name: str) -> None:
    text = f"meta.{name} is not read; did you mean meta.recluster?"
    assert parse(meta={name: {"depth": 2}}).unknown == (text,)


def test_configs_that_resemble_ours_beside_those_of_an_adapter() -> None:
    keys = dict.fromkeys(["cluster_bys", "block_row", "clustered_by", "tags", "cluster_by_old"])
    assert list(unknown_names(keys, ["clustered_by"])) == [
        "there is no config cluster_bys; did you mean cluster_by?",
        "there is no config block_row; did you mean block_rows?",
    ]


def test_values_from_env_var_are_strings() -> None:
    config = parse(
        automatic_clustering="False", recluster_depth="3", block_rows="5000", recluster_max_bytes="1000"
    )
    own = config.recluster
    assert (config.automatic_clustering, own.depth, own.block_rows, own.max_bytes) == (False, 3.0, 5000, 1000)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(10, 10), ("10", 10), ("10 b", 10), ("2KB", 2048), ("0.5 mb", 524288), ("1 TB", 2**40)],
)
def test_sizes(value: Any, expected: int) -> None:
    assert parse_bytes("max_bytes", value) == expected


def test_turning_off_for_one_run() -> None:
    def is_off(value: Any, environment: dict[str, str] | None = None) -> bool:
        return RunVars.of({"automatic_clustering": value}.get, environment or {}).is_off

    assert not is_off(None)
    assert not is_off(True)
    assert is_off("false")
    assert is_off(None, {"DBT_RECLUSTER_AUTOMATIC_CLUSTERING": "0"})
    assert not is_off(None, {"DBT_RECLUSTER_AUTOMATIC_CLUSTERING": ""})
    with pytest.raises(OptionError, match="var automatic_clustering must be true or false"):
        is_off("perhaps")


def test_order_of_a_load() -> None:
    columns = Columns.parse({"Id": "bigint", "ts": "timestamp"})
    config = parse(cluster_by=["to_date(ts)", "ID"]).resolve(columns)
    assert config.order_by() == "cast(`ts` as date), `Id`"
    assert parse(cluster_by="id", sort_on_load=False).resolve(columns).order_by() is None
    assert parse().resolve(columns).order_by() is None


def test_given_values_win_over_those_of_the_table_even_wrong_ones() -> None:
    properties = {"recluster.option.depth": "banana", "recluster.option.max_bytes": "10 GB"}
    options = ReclusterOptions.of_table(properties, depth=2, where=None, dry_run=True)
    assert options == ReclusterOptions(depth=2, max_bytes="10 GB", dry_run=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("depth", "banana"),
        ("where", ""),
        ("automatic_clustering", "perhaps"),
    ],
)
def test_a_wrong_value_of_a_table_names_its_property(name: str, value: str) -> None:
    properties = {f"recluster.option.{name}": value}
    with pytest.raises(OptionError, match=f"^table property recluster.option.{name} must be "):
        MODEL_OPTIONS[name].of_table(properties)


def test_a_wrong_key_of_a_table_names_its_property() -> None:
    with pytest.raises(ClusterKeyError, match=r"^table property recluster\.cluster_by: cluster_by item"):
        recorded_key({"recluster.cluster_by": "upper(name)"})


def test_unknown_properties_are_named() -> None:
    names = [
        "recluster.option.depht",
        "recluster.option.depth",
        "recluster.option.after",
        "write.format.default",
    ]
    assert unknown_properties(names) == ["recluster.option.after", "recluster.option.depht"]


def test_what_is_recorded_is_what_was_meant() -> None:
    options = parse(
        automatic_clustering=False,
        recluster_depth="auto",
        recluster_final=True,
        recluster_reads=["id > 5"],
        block_rows=7,
    )
    assert ReclusterOptions.of_table(options.properties()) == options.recluster
    assert MODEL_OPTIONS["automatic_clustering"].of_table(options.properties()) is False
    recorded = {name for name, option in MODEL_OPTIONS.items() if option.is_recorded}
    assert {name.removeprefix("recluster.option.") for name in options.properties()} <= recorded
    assert not ModelOptions().properties()
