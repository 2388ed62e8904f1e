{#-
  dbt-spark's view, with a warning if cluster_by is set, and a drop if `create or replace` would have no effect. Over a Hive
  metastore, Iceberg's session catalog replaces the view's Iceberg metadata but not the text that Spark reads, so the view
  would keep its first definition forever (apache/iceberg#15490).
-#}
{% materialization view, adapter='recluster' %}
  {%- do adapter.current_build().warn_ignored(context) -%}
  {%- set existing = load_cached_relation(this) -%}
  {%- if adapter.cannot_replace_view(existing) -%}
    {%- do adapter.drop_relation(existing) -%}
  {%- endif -%}
  {{ return(materialization_view_spark()) }}
{% endmaterialization %}
