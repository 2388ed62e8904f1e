{#-
  dbt run-operation clustering_depth --args '{table: analytics.events}'

  Print the average depth of tables.
-#}
{% macro clustering_depth(table=none, select=none, exclude=none, cluster_by=none, where=none, format='text') %}
  {%- do adapter.check_operation_arguments('clustering_depth', kwargs) -%}
  {%- do adapter.dispatch('clustering_depth', 'dbt')(table, select, exclude, cluster_by, where, format) -%}
{% endmacro %}

{% macro default__clustering_depth(table, select, exclude, cluster_by, where, format) %}
  {%- do recluster_operate('clustering_depth', {
    'table': table, 'select': select, 'exclude': exclude, 'cluster_by': cluster_by, 'where': where, 'format': format
  }) -%}
{% endmacro %}
