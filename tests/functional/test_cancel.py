"""What others do to a connection: dbt cancels it, on Ctrl-C; tables are dropped while it lists them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from dbt_common.exceptions import DbtRuntimeError

from dbt_recluster.adapter.connections.credentials import ReclusterCredentials
from dbt_recluster.adapter.connections.handles import SessionHandle
from dbt_recluster.iceberg.session.jobs import job_group

# A minute of work, so that a cancel that does not come fails and does not hang.
LONG = "select count(*) from range(100000000000L) where id % 7 = 3"


def test_the_next_job_of_a_cancelled_connection_is_cancelled_too(
    spark: Any, dbt_profile_target: dict[str, Any]
) -> None:
    """A merge is several jobs, and a cancel may come between two of them."""
    credentials = ReclusterCredentials.from_dict({**dbt_profile_target, "schema": "s", "database": None})
    handle = SessionHandle(credentials, "model.p.m")
    handle.cancel()
    with job_group(spark, handle.jobs.group):
        for _ in range(2):
            with pytest.raises(Exception, match="cancelled"):
                spark.sql(LONG).collect()
        handle.close()
        for thread in threading.enumerate():
            if thread.name == "recluster-cancel":
                thread.join(timeout=10)
                assert not thread.is_alive()
        assert spark.sql("select count(*) from range(10)").first()[0] == 10


class TestCancelledConnections:
    def test_what_runs_and_what_would_run_next(self, project: Any) -> None:
        """dbt cancels on Ctrl-C and waits for the nodes that have begun; one may not have run a statement yet."""
        adapter = project.adapter
        opened, begun, cancelled = threading.Event(), threading.Event(), threading.Event()

        def in_a_statement() -> None:
            with adapter.connection_named("model.p.one"):
                adapter.execute("select 1")
                opened.set()
                adapter.execute(LONG, fetch=True)

        def before_its_first() -> None:
            with adapter.connection_named("model.p.two"):
                begun.set()
                assert cancelled.wait(60)
                with adapter.connections.after_cancel():  # what puts a table back
                    adapter.execute("select 1")
                adapter.execute(LONG, fetch=True)

        with adapter.connection_named("master"), ThreadPoolExecutor() as threads:
            one, two = threads.submit(in_a_statement), threads.submit(before_its_first)
            assert opened.wait(60)
            assert begun.wait(60)
            assert sorted(adapter.cancel_open_connections()) == ["model.p.one", "model.p.two"]
            cancelled.set()
            with pytest.raises(DbtRuntimeError, match="cancelled"):
                one.result(60)
            with pytest.raises(DbtRuntimeError, match="not run: dbt has cancelled its connections"):
                two.result(60)
            # The hooks at the end of a run that failed fast are this thread's.
            assert adapter.execute("select 1 as n", fetch=True)[1].rows[0].values() == (1,)


class TestListing:
    def test_a_table_that_is_gone_is_not_the_end_of_a_listing(self, project: Any) -> None:
        adapter, ended = project.adapter, threading.Event()
        schema = adapter.Relation.create(schema=project.test_schema).without_identifier()
        stays = {f"stays_{number}" for number in range(5)}

        def come_and_go() -> None:
            with adapter.connection_named("model.p.other"):
                while not ended.is_set():
                    adapter.execute(f"create view {project.test_schema}.zz as select 1 as id")
                    adapter.execute(f"drop view {project.test_schema}.zz")

        with adapter.connection_named("master"), ThreadPoolExecutor() as threads:
            for name in stays:
                adapter.execute(f"create view {project.test_schema}.{name} as select 1 as id")
            other = threads.submit(come_and_go)
            try:
                for _ in range(25):
                    listed = {relation.identifier for relation in adapter.list_relations_without_caching(schema)}
                    assert listed - {"zz"} == stays
            finally:
                ended.set()
            other.result(60)
