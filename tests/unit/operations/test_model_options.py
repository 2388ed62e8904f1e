"""The options of a model: their values, what is wrong with them, and what they mean in a table's properties."""

from contextlib import suppress
from dataclasses import fields
from typing import Any

import pytest
import yaml
from test_arguments import ANYTHING

from dbt_recluster.clustering.options import RECLUSTER_OPTIONS, DeclaredRead, ReclusterOptions
from dbt_recluster.exceptions import ClusterKeyError, OptionError, ReclusterError
from dbt_recluster.iceberg.sort_order import recorded_key
from dbt_recluster.key.cluster_key import parse_cluster_key
from dbt_recluster.operations.model_options import CONFIGS, MODEL_OPTIONS, ModelOptions, unknown_names
from dbt_recluster.planner import Policy


def parse(**config: Any) -> ModelOptions:
    return ModelOptions.from_config(config)


def of_table(**options: str) -> ReclusterOptions:
    return ReclusterOptions.from_properties({f"recluster.option.{name}": value for name, value in options.items()})


def test_the_defaults_of_a_model_and_of_a_table_are_the_same() -> None:
    assert parse() == parse(cluster_by=[]) == parse(meta={"owner": "sales"}) == parse(meta=None) == ModelOptions()
    assert of_table() == ModelOptions().recluster == ReclusterOptions()
    assert ModelOptions().automatic_clustering
    assert (ReclusterOptions().block_rows, ReclusterOptions().depth) == (1_000_000, None)
    assert not ModelOptions().properties()


EVERY_KEY: dict[str, Any] = {
    "cluster_by": ["to_date(ts)", "id"],
    "automatic_clustering": False,
    "recluster_depth": 2.5,
    "recluster_final": True,
    "recluster_strategy": "peak",
    "recluster_max_bytes": "1.5 GB",
    "recluster_where": "id > 3",
    "recluster_reads": ["id > 5", {"where": "id = 7", "weight": 3}],
    "recluster_maintain": True,
    "block_rows": 1000,
    "sort_on_load": False,
}


def test_every_key_means_the_same_in_meta_in_an_env_var_and_in_a_table() -> None:
    config = parse(**EVERY_KEY, materialized="table")
    options = ReclusterOptions(
        depth=2.5,
        final=True,
        strategy="peak",
        max_bytes=1536 * 2**20,
        where="id > 3",
        reads=(DeclaredRead("id > 5"), DeclaredRead("id = 7", weight=3.0)),
        block_rows=1000,
    )
    assert config == ModelOptions(
        cluster_by=parse_cluster_key(["days(ts)", "id"]),
        automatic_clustering=False,
        sort_on_load=False,
        maintain=True,
        recluster=options,
    )
    meta = {CONFIGS[name].name: value for name, value in EVERY_KEY.items()}
    assert parse(meta={"recluster": meta}) == config
    texts = {name: value if isinstance(value, list) else str(value) for name, value in EVERY_KEY.items()}
    assert parse(**texts) == config
    assert parse(meta={"recluster": {"reads": "project"}}).records_reads
    recorded = config.properties()
    assert ReclusterOptions.from_properties(recorded) == options
    assert MODEL_OPTIONS["automatic_clustering"].of_table(recorded) is False


def test_the_example_of_every_option_is_read_recorded_and_planned_with() -> None:
    examples = {name: yaml.safe_load(of.example) for name, of in MODEL_OPTIONS.items()}
    found = parse(meta={"recluster": examples})
    assert found == parse(**{of.config: examples[name] for name, of in MODEL_OPTIONS.items()})
    assert found.records_reads  # the example of reads
    recorded = found.properties()
    for name, of in RECLUSTER_OPTIONS.items():
        assert getattr(found.recluster, name) != of.default or name == "reads", name
        if of.is_recorded:
            assert of.of_table(recorded) == getattr(found.recluster, name), name
    for name in {f.name for f in fields(Policy)} & examples.keys():
        assert getattr(found.recluster.policy, name) == getattr(found.recluster, name), name


def test_meta_wins_over_the_configs_of_its_folder() -> None:
    folder = {"cluster_by": "day", "recluster_depth": 3}
    for own in ("id", []):
        found = parse(**folder, meta={"recluster": {"cluster_by": own}})
        assert found == parse(cluster_by=own, recluster_depth=3)
    # Another target of the project may have a key of another kind.
    other = {"cluster_by": {"field": "day"}}
    assert parse(**other, meta={"recluster": {"cluster_by": "id"}}) == parse(cluster_by="id")


WRONG: dict[tuple[str, str], list[Any]] = {
    ("cluster_by", "cluster_by must be a string or a list"): [3],
    ("automatic_clustering", "automatic_clustering must be true or false, not 'maybe'"): ["maybe"],
    ("recluster_depth", "must be a number of at least 1"): ["deep", 0, -1, True, "nan", float("inf")],
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


def test_a_name_that_is_none_of_ours_is_answered_with_the_one_that_is_meant_or_all() -> None:
    """Our prefix is most of a name, and makes any two of them alike."""
    for name, meant in {
        "recluster_dept": "did you mean recluster_depth?",
        "recluster_read": "did you mean recluster_reads?",
        "recluster_block_rows": "did you mean block_rows?",
        "recluster_maximum_bytes": "did you mean recluster_max_bytes?",
        "recluster_zzz": f"there are {', '.join(CONFIGS)}",
    }.items():
        assert parse(**{name: 3}).unknown == (f"there is no config {name}; {meant}",)
    unknown = parse(meta={"recluster": {"dept": 2, "recluster_cluster_by": 1}, "reclsuter": {"depth": 2}}).unknown
    assert unknown == (
        "there is no meta.recluster.dept; did you mean depth?",
        "there is no meta.recluster.recluster_cluster_by; did you mean cluster_by?",
        "meta.reclsuter is not read; did you mean meta.recluster?",
    )
    theirs = {"owner": "sales", "cluster": "eu-1", "re": 1, "recluster_owner": "sales"}
    assert parse(meta=theirs, clustered_by="id", max_bytes=1).unknown == ()
    beside = dict.fromkeys(["cluster_bys", "clustered_by", "tags", "cluster_by_old"])
    resembling = "there is no config cluster_bys; did you mean cluster_by?"
    assert list(unknown_names(beside, ["clustered_by"])) == [resembling]


def test_given_values_win_over_those_of_the_table_even_wrong_ones() -> None:
    properties = {"recluster.option.depth": "banana", "recluster.option.max_bytes": "10 GB"}
    options = ReclusterOptions.from_properties(properties, depth=2, where=None, dry_run=True)
    assert options == ReclusterOptions(depth=2, max_bytes=10 * 2**30, dry_run=True)


def test_a_wrong_value_of_a_table_names_its_property() -> None:
    for name, value in (("depth", "banana"), ("where", ""), ("automatic_clustering", "perhaps")):
        with pytest.raises(OptionError, match=f"^table property recluster.option.{name} must be "):
            MODEL_OPTIONS[name].of_table({f"recluster.option.{name}": value})
    with pytest.raises(ClusterKeyError, match=r"^table property recluster\.cluster_by: cluster_by item"):
        recorded_key({"recluster.cluster_by": "upper(name)"})


@pytest.mark.parametrize("name", CONFIGS)
def test_no_value_of_a_config_is_a_fault(name: str) -> None:
    for value in ANYTHING:
        with suppress(ReclusterError):
            parse(**{name: value})
