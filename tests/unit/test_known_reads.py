from __future__ import annotations

import json
from typing import Any

import pytest

from dbt_recluster.clustering.known_reads import KnownRead, parse_reads, reads_text
from dbt_recluster.clustering.options import ReclusterOptions
from dbt_recluster.clustering.table_settings import TableSettings
from dbt_recluster.exceptions import OptionError

DAY, USER = "d >= date'2026-01-01'", "user = 'it\\'s \"x\"'"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ()),
        ([], ()),
        (DAY, (KnownRead(DAY),)),
        ([DAY, {"where": USER, "weight": 2.5}], (KnownRead(DAY), KnownRead(USER, 2.5))),
        ({"where": DAY, "weight": "3"}, (KnownRead(DAY, 3.0),)),
    ],
)
def test_reads_are_the_same_after_they_were_kept_as_text(value: Any, expected: tuple[KnownRead, ...]) -> None:
    reads = parse_reads("reads", value)
    assert reads == expected
    assert parse_reads("reads", reads_text(reads)) == reads
    assert parse_reads("reads", json.dumps(json.loads(reads_text(reads)))) == reads
    assert ReclusterOptions(reads=value or ()).reads == reads
    settings = TableSettings({"recluster.option.reads": reads_text(reads)})
    assert (settings.reads, settings.options().reads) == (reads, reads)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (7, "reads must be a list of SQL predicates such as"),
        ("", "a read is a SQL predicate such as"),
        ([DAY, 7], "a read is a SQL predicate such as .*, not 7"),
        ("[1", "reads must be a list of SQL predicates"),
        ([{"query": DAY}], "a read has `where` and `weight`, and no `query`"),
        ([{"weight": 1}], "a read is a SQL predicate"),
        ([{"where": DAY, "weight": -1}], "a weight must be a number above 0, not -1"),
        ([{"where": DAY, "weight": "often"}], "a weight must be a number above 0, not 'often'"),
        (
            [f"k = {number}" for number in range(1_000_000)],
            r"must be shorter: 1000000 predicates take [\d,]+ characters",
        ),
    ],
)
def test_what_is_no_read_is_refused(value: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_reads("reads", value)
