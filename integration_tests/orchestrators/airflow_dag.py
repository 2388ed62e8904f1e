"""Airflow: dbt builds, reclustering has a task of its own, and a gate fails where a table needs somebody to look at it.

DBT_PROJECT is the directory of the project, DBT the program; dbt may live in another environment than Airflow.
"""

import os

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import dag

DBT = os.environ.get("DBT", "dbt")


def command(words: str) -> str:
    """Return a dbt command for a shell."""
    return f"{DBT} {words} --profiles-dir ."


@dag(schedule="@daily", catchup=False, max_active_runs=1)
def shop() -> None:
    """Build, recluster, look."""
    place = {"cwd": os.environ["DBT_PROJECT"], "append_env": True}
    build = BashOperator(task_id="build", bash_command=command("build --vars 'automatic_clustering: false'"), **place)
    recluster = BashOperator(task_id="recluster", bash_command=command("run-operation recluster"), **place)
    gate = BashOperator(
        task_id="gate",
        bash_command=command("run-operation clustering_overview --args '{fail_on: \"deep,failing\"}'"),
        **place,
    )
    build >> recluster >> gate


shop()
