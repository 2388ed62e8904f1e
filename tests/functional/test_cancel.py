"""A connection that dbt cancels, on Ctrl-C."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from dbt_recluster.adapter.credentials import ReclusterCredentials
from dbt_recluster.adapter.session import SessionHandle
from dbt_recluster.iceberg.jobs import job_group

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
