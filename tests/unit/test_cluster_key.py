import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbt_recluster.exceptions import ClusterKeyError
from dbt_recluster.key.cluster_key import ClusterKey, KeyField, parse_cluster_key, split_arguments
from dbt_recluster.key.columns import Columns
from dbt_recluster.key.transforms import TRANSFORMS, Day, Hour, Month, Transform, Truncate, Year

TYPES = {
    "id": "bigint",
    "Name": "string",
    "ts": "timestamp",
    "local": "timestamp_ntz",
    "day": "date",
    "price": "decimal(10,2)",
    "ratio": "double",
    "tags": "array<string>",
    "place": "struct<city:string,spots:array<int>,names:map<string,int>,inner:struct<x:decimal(5,1)>>",
    "odd name": "int",
    "a.b": "int",
    "span": "interval day to second",
}
COLUMNS = Columns.parse(TYPES)

SPELLINGS = {
    KeyField("id"): ["id", "  id "],
    KeyField("odd name"): ["`odd name`"],
    KeyField("place.city"): ["place.city"],
    KeyField("ts", Day()): [
        "days(ts)",
        "to_date(ts)",
        "date(ts)",
        "CAST(`ts` AS DATE)",
        "date_trunc('DAY', ts)",
    ],
    KeyField("date", Day()): ["cast(date as date)", "date(date)"],
    KeyField("ts", Hour()): ["HOURS( ts )", "date_trunc('hour', ts)"],
    KeyField("ts", Month()): ["months(ts)", "date_trunc('month', ts)"],
    KeyField("ts", Year()): ["years(ts)", "year(ts)", "date_trunc('year', ts)"],
    KeyField("day", Month()): ["trunc(day, 'MM')"],
    KeyField("name", Truncate(4)): ["truncate(4, name)", "truncate(name, 4)"],
    KeyField("name", Truncate(8)): ["substr(name, 1, 8)", "substring(name, 0, 8)", "left(name, 8)"],
}


@pytest.mark.parametrize(
    ("written", "field"), [(written, field) for field, texts in SPELLINGS.items() for written in texts]
)
def test_an_item_is_read_as_users_write_it(written: str, field: KeyField) -> None:
    assert parse_cluster_key(written) == ClusterKey((field,))


WEEKS = r"Iceberg has no transform to weeks; write days\(ts\)"
NO_ORDER = "has no order to cluster by"
NO_KEYS = """truncate(2147483648, id) | bucket(4, id) | id + 1 | id desc | substr(name, 2, 3) | substr(name, 2) |
left(name, 0) | truncate(-1, id) | cast(ts as timestamp) | lower(name) | days(ts, 1) | days() | 1 |
id; drop table x | days(ts)) -- """


@pytest.mark.parametrize(
    ("written", "message"),
    [
        *((text.strip(), "cluster_by") for text in NO_KEYS.split("|")),
        ("id,", "has an empty item"),
        (["id", " "], "has an empty item"),
        ("", "cluster_by is empty"),
        *((value, "must be a string or a list of strings") for value in ({"a": 1}, 3, ["id", 3], [["id"]])),
        *((f"{part}(ts)", rf"write {part}s\(ts\)") for part in ("hour", "day", "month")),
        *((item, WEEKS) for item in ("weeks(ts)", "week(ts)", "date_trunc('WEEK', ts)")),
        (["to_date(ts)", "days(ts)"], r"cluster_by names days\(ts\) twice"),
        ("nope", "there is no column 'nope'; the columns are id, Name"),
        ("nope.city", "there is no column"),
        *((column, NO_ORDER) for column in ("tags", "place", "place.spots", "place.inner")),
        ("id.x", "id is bigint, and only structs have fields"),
        ("tags.element", "tags is array<string>, and only structs have fields"),
        ("place.nope", "place has no field 'nope'; its fields are city, spots, names, inner"),
        ("place.names.key", "place.names is map<string,int>, and only structs have fields"),
        ("a.b", "has a dot in its name"),
        ("span", "interval day to second has no order"),
        ("days(id)", "needs date or timestamp"),
        ("hours(day)", "needs timestamp"),
        ("truncate(3, ts)", "needs"),
        ("truncate(3, ratio)", "needs"),
        (["to_date(ts)", "days(TS)"], "twice"),
        ("to_date(NAME)", r"^cluster_by item to_date\(NAME\): Name is string"),
        ("hilbert()", r"item hilbert\(\): a curve has two to four columns, not 0"),
        ("hilbert(id, ts, name, day, price)", "a curve has two to four columns, not 5"),
        ("hilbert(id, hilbert(ts, day))", r"item hilbert\(ts, day\): a curve must be the last item"),
        (["hilbert(id, ts)", "day"], r"item hilbert\(id, ts\): a curve must be the last item"),
        ("hilbert(id, ID)", "cluster_by names id twice"),
        (["days(ts)", "hilbert(id, ts)"], "cluster_by names ts twice, once on a curve"),
        ("hilbert(id, nope)", "item nope: there is no column 'nope'"),
    ],
)
def test_what_is_no_key_is_refused_with_the_reason(written: Any, message: str) -> None:
    with pytest.raises(ClusterKeyError, match=message):
        parse_cluster_key(written).check(COLUMNS)


def test_every_transform_takes_a_type() -> None:
    assert [kind for kind in TRANSFORMS if kind.written and not kind.types.fget(kind)] == []  # type: ignore[attr-defined]


def test_a_string_may_hold_several_items() -> None:
    key = parse_cluster_key("to_date(ts), truncate(2, name), id, ts")
    assert key == parse_cluster_key(["days(ts)", "left(name, 2)", "id", "ts"])


def test_columns_are_spelled_as_the_table_does() -> None:
    key = parse_cluster_key(["NAME", "to_date(TS)", "PLACE.city", "place.Inner.X"]).check(COLUMNS)
    assert [field.column for field in key.fields] == ["Name", "ts", "place.city", "place.inner.x"]


def test_a_key_is_the_sql_of_its_items() -> None:
    items = ["to_date(ts)", "hours(local)", "left(name, 4)", "truncate(10, id)", "truncate(50, price)"]
    key = parse_cluster_key([*items, "`odd name`"]).check(COLUMNS)
    names = "days(ts), hours(local), truncate(4, Name), truncate(10, id), truncate(50, price), `odd name`"
    assert str(key) == names
    assert key.ddl() == re.sub(r"\b(ts|local|Name|id|price)\b", r"`\1`", names)
    assert key.order_by(COLUMNS) == (
        "div(unix_micros(`ts`), 86400000000) - if(unix_micros(`ts`) % 86400000000 < 0, 1, 0), "
        "cast(unix_date(to_date(`local`)) as bigint) * 24 + hour(`local`), substr(`Name`, 1, 4), "
        "coalesce(try_subtract(`id`, pmod(`id`, 10)), `id`), "
        "try_cast(try_subtract(`price`, pmod(`price`, 0.50)) as decimal(10,2)), `odd name`"
    )
    assert key.description().startswith("days(ts) ASC NULLS FIRST, hours(local) ASC NULLS FIRST, truncate(Name, 4) ASC")


FIELDS = st.builds(
    KeyField,
    st.sampled_from(["id", "name", "a b", "x`y"]),
    st.sampled_from([Transform(), Day(), Hour(), Truncate(7)]),
)


@given(st.lists(FIELDS, min_size=1, max_size=4, unique=True))
def test_what_is_printed_can_be_read_again(items: list[KeyField]) -> None:
    key = ClusterKey(tuple(items))
    assert parse_cluster_key(key.ddl()) == key
    assert parse_cluster_key(str(key)) == key


@given(st.text(alphabet="ab(),`' .", max_size=20) | st.text(max_size=40))
def test_any_text_is_a_key_or_a_clear_error(text: str) -> None:
    assert ",".join(split_arguments(text)) == (text if text.strip() else "")
    with suppress(ClusterKeyError):
        assert parse_cluster_key(text).fields
