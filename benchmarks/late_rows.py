"""Daily loads with late rows under hilbert(user_id, to_date(ts)), against a new table of the same rows.

After each load, the blocks that a day and a user open on average, and the rows rewritten so far as a multiple of the
rows loaded; at the end `depth=1, final=True`. Usage: late_rows.py [--loads 10] [--rows 50000] [--depth 4]
"""

from __future__ import annotations

from typing import Any

import command

from dbt_recluster.maintenance import blocks_opened, recluster

KEY = "hilbert(user_id, to_date(ts))"
LATE = 0.03
USERS = 5_000


def load(spark: Any, name: str, day: int, rows: int) -> None:
    """Append a day's rows, a share of which belong to days before it."""
    late = f"rand({day}) < {LATE}"
    spark.range(day * rows, (day + 1) * rows).selectExpr(
        "id",
        f"cast(pow(rand({day + 100}), 2) * {USERS} as int) user_id",
        f"timestamp'2026-01-01' + make_dt_interval(if({late}, cast(rand({day + 200}) * {day + 1} as int), {day}), "
        f"0, 0, rand({day + 300}) * 86399) ts",
    ).repartition(4).writeTo(name).append()


def create(spark: Any, name: str) -> None:
    """Create an empty table."""
    spark.sql(
        f"create table {name} (id bigint, user_id int, ts timestamp) using iceberg "
        "tblproperties ('write.distribution-mode' = 'none')"
    )


def opened(spark: Any, name: str, days: int) -> tuple[float, float]:
    """Blocks that a day and a user open on average."""
    of_day = [
        blocks_opened(
            spark, name, f"ts >= timestamp'2026-01-{day:02}' and ts < timestamp'2026-01-{day + 1:02}'"
        )
        for day in range(1, days + 1)
    ]
    users = [round((place + 0.5) ** 2 / 400 * USERS) for place in range(20)]
    of_user = [blocks_opened(spark, name, f"user_id = {user}") for user in users]
    return sum(of_day) / len(of_day), sum(of_user) / len(of_user)


def report(spark: Any, label: str, name: str, loads: int, work: float, block_rows: int) -> None:
    """Print a line that compares a table with a new one."""
    create(spark, fresh := f"{name}_new")
    spark.table(name).repartition(8).writeTo(fresh).append()
    recluster(spark, fresh, KEY, depth=1, block_rows=block_rows, final=True)
    (day, user), (new_day, new_user) = opened(spark, name, loads), opened(spark, fresh, loads)
    spark.sql(f"drop table {fresh} purge")
    print(
        f"{label:>8} | day {day:5.2f} | new {new_day:5.2f} | {day / new_day:4.2f} | user {user:5.2f} | "
        f"new {new_user:5.2f} | {user / new_user:4.2f} | rows rewritten {work / loads:5.2f}",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = command.parser(__doc__)
    parser.add_argument("--loads", type=int, default=10)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--block-rows", type=int, default=12_500)
    parser.add_argument("--depth", type=float, default=4)
    parser.add_argument("--every", type=int, default=5, help="loads between two lines")
    parser.add_argument("--final", action="store_true", help="final after each load")
    options = parser.parse_args()
    from dbt_recluster.adapter.connections import embedded

    with command.own_directory("late-rows") as directory:
        spark = embedded.start(str(directory / "lake"), {"spark.sql.shuffle.partitions": "2"})
        spark.sql("create namespace events")
        name, work = "events.log", 0.0
        create(spark, name)
        for number in range(options.loads):
            load(spark, name, number, options.rows)
            result = recluster(
                spark, name, KEY, depth=options.depth, block_rows=options.block_rows, final=options.final
            )
            work += result.rows / options.rows
            if (number + 1) % options.every == 0:
                report(spark, f"load {number + 1}", name, number + 1, work, options.block_rows)
        result = recluster(spark, name, depth=1, block_rows=options.block_rows, final=True)
        report(spark, "final", name, options.loads, work + result.rows / options.rows, options.block_rows)


if __name__ == "__main__":
    main()
