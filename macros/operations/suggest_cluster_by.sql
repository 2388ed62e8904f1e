{#-
  dbt run-operation suggest_cluster_by --args '{table: analytics.events, queries: ["user_id = 7"]}'

  Print which keys would let queries skip most blocks of a table, or that it should not be clustered.
-#}
{% macro suggest_cluster_by(table=none, select=none, exclude=none, queries=none, format='text') %}
  {%- do adapter.check_operation_arguments('suggest_cluster_by', kwargs) -%}
  {%- do adapter.dispatch('suggest_cluster_by', 'dbt')(table, select, exclude, queries, format) -%}
{% endmacro %}

{% macro default__suggest_cluster_by(table, select, exclude, queries, format) %}
  {%- do recluster_operate('suggest_cluster_by', {
    'table': table, 'select': select, 'exclude': exclude, 'queries': queries, 'format': format
  }) -%}
{% endmacro %}
