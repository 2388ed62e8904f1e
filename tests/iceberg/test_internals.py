"""The members of Spark and Iceberg that are no public interface are those of the versions that run."""

from importlib import import_module
from typing import Any

import pytest

from dbt_recluster.iceberg.session.internals import MEMBERS
from dbt_recluster.iceberg.session.jvm import java_class

# A Scala object's members are static ones of its class.
_LISTS = ("getMethods", "getDeclaredMethods", "getDeclaredFields")


def members(spark: Any, owner: str, names: set[str]) -> set[str]:
    """Return which of the names are members of a Java class, or of a module or an object of pyspark."""
    if not owner.startswith("pyspark."):
        java = java_class(spark, f"org.apache.{owner}")
        return names & {str(member.getName()) for get in _LISTS for member in getattr(java, get)()}
    with pytest.raises(Exception, match="no_such_column") as error:
        spark.sql("select no_such_column")
    objects = {type(each).__name__: each for each in (spark, spark.sparkContext, spark.range(1))}
    objects["CapturedException"] = error.value
    found = objects.get(owner.rpartition(".")[2]) or import_module(owner)
    return {name for name in names if hasattr(found, name)}


@pytest.mark.parametrize("owner", MEMBERS)
def test_private_members_exist_in_this_version(spark: Any, owner: str) -> None:
    needed, loss = MEMBERS[owner]
    found = members(spark, owner, set(needed.replace("/", " ").split()))
    for names in needed.split():
        assert found & set(names.split("/")), f"{owner} has no {names}: {loss}"


@pytest.mark.parametrize("owner", ["iceberg.BaseTransaction", "pyspark.sql.DataFrame"])
def test_a_missing_member_is_noticed(spark: Any, owner: str) -> None:
    assert not members(spark, owner, {"no_such_member"})
