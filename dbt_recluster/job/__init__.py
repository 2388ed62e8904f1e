"""``dbt-recluster``: reclustering for any orchestrator, without a dbt project. It does not import dbt."""
