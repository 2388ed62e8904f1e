{#-
  dbt run-operation estimate_clustering_cost --args '{table: analytics.events, cluster_by: event_date}'

  Print what clustering tables would cost: once, and for each day of loads like those of the past week.
-#}
{% macro estimate_clustering_cost(table=none, select=none, exclude=none, cluster_by=none, format='text') %}
  {%- do adapter.check_operation_arguments('estimate_clustering_cost', kwargs) -%}
  {%- do adapter.dispatch('estimate_clustering_cost', 'dbt')(table, select, exclude, cluster_by, format) -%}
{% endmacro %}

{% macro default__estimate_clustering_cost(table, select, exclude, cluster_by, format) %}
  {%- do recluster_operate('estimate_clustering_cost', {
    'table': table, 'select': select, 'exclude': exclude, 'cluster_by': cluster_by, 'format': format
  }) -%}
{% endmacro %}
