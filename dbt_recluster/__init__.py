"""dbt-recluster: automatic clustering for dbt models on Spark and Apache Iceberg.

dbt imports every installed top-level module called ``dbt_*`` in every command, whatever the adapter. So nothing is
imported here, and the name ``plugins`` is never defined here: dbt would take it for a list of its own plugins.
"""
