{#-
  dbt-spark's view, after two services: a warning where cluster_by is set, and a drop where `create or replace` would lie.
  Over a Hive metastore, Iceberg's session catalog replaces a view's Iceberg metadata and leaves the text that Spark reads
  as it was, so the view keeps its first definition for ever (apache/iceberg#15490).
-#}
{% materialization view, adapter='recluster' %}
  {%- do recluster_warn_ignored() -%}
  {%- set existing = load_cached_relation(this) -%}
  {%- if adapter.cannot_replace_view(existing) -%}
    {%- do adapter.drop_relation(existing) -%}
  {%- endif -%}
  {{ return(materialization_view_spark()) }}
{% endmaterialization %}
