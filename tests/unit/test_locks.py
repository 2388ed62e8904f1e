import threading
import time

import pytest

from dbt_recluster.names import table_lock, written_tables


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ('/* {"app": "dbt"} */\n insert overwrite a.t select 1', ["a.t"]),
        ("INSERT INTO TABLE `A` . `T` VALUES (1)", ["a.t"]),
        ("merge into a.t as d using s on d.id = s.id when matched then delete", ["a.t"]),
        ("delete from spark_catalog.a.t where id = 1", ["a.t"]),
        ("update a.t set id = 1", ["a.t"]),
        ("create or replace table a.t using iceberg as select 1", ["a.t"]),
        ("create table if not exists a.t (id int)", ["a.t"]),
        ("alter table a.t write ordered by id", ["a.t"]),
        ("drop table if exists a.t", ["a.t"]),
        ("truncate table a.t", ["a.t"]),
        ("with x as (select 1) insert into a.t select * from x", ["a.t"]),
        ("call spark_catalog.system.rewrite_data_files(table => 'a.t', where => 'id > 1')", ["a.t"]),
        ('CALL system.rollback_to_snapshot("a.`t`", 5)', ["a.t"]),
        ("create or replace view a.v as select 1", []),
        ("-- insert into a.t\nselect 1", []),
        ("with x as (select 'a -- b') insert into a.t select * from x", ["a.t"]),
        ("insert into `a--b`.`/*`.t select 1 -- it's /* here", ["/*.t"]),
        (r"with x as (select r'\' d, ' -- ' e) insert into a.t select 1", ["a.t"]),
        (r"with x as (select 'it''s \' -- ') insert into a.t select 1", ["a.t"]),
        ("with x as (select 's3://b/*') insert into a.t select 1 /* end */", ["a.t"]),
    ],
)
def test_the_tables_that_statements_write(sql: str, tables: list[str]) -> None:
    assert written_tables(sql) == tables


def test_locks_keep_others_out_and_opposite_orders_do_not_deadlock() -> None:
    inside, most = 0, 0

    def work(*names: str) -> None:
        nonlocal inside, most
        for _ in range(50):
            with table_lock(*names), table_lock(names[0]):  # its own thread is let in again
                inside += 1
                most = max(most, inside)
                time.sleep(0.0001)
                inside -= 1

    orders = (("a.x", "a.y"), ("a.y", "a.x"), ("a.y", "a.x"))
    threads = [threading.Thread(target=work, args=names, daemon=True) for names in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert not any(thread.is_alive() for thread in threads)
    assert most == 1
