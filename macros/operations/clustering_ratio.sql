{#-
  dbt run-operation clustering_ratio --args '{table: analytics.events}'

  Print the clustering ratio of tables, 100 for no overlap.
-#}
{% macro clustering_ratio(table=none, select=none, exclude=none, cluster_by=none, where=none, format='text') %}
  {%- do adapter.check_operation_arguments('clustering_ratio', kwargs) -%}
  {%- do adapter.dispatch('clustering_ratio', 'dbt')(table, select, exclude, cluster_by, where, format) -%}
{% endmacro %}

{% macro default__clustering_ratio(table, select, exclude, cluster_by, where, format) %}
  {%- do recluster_operate('clustering_ratio', {
    'table': table, 'select': select, 'exclude': exclude, 'cluster_by': cluster_by, 'where': where, 'format': format
  }) -%}
{% endmacro %}
