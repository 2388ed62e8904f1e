{#-
  dbt run-operation clustering_information --args '{table: analytics.events}'

  Print how well tables are clustered: all metrics, and how many blocks have which depth.
-#}
{% macro clustering_information(table=none, select=none, exclude=none, cluster_by=none, where=none, format='text') %}
  {%- do adapter.check_operation_arguments('clustering_information', kwargs) -%}
  {%- do adapter.dispatch('clustering_information', 'dbt')(table, select, exclude, cluster_by, where, format) -%}
{% endmacro %}

{% macro default__clustering_information(table, select, exclude, cluster_by, where, format) %}
  {%- do recluster_operate('clustering_information', {
    'table': table, 'select': select, 'exclude': exclude, 'cluster_by': cluster_by, 'where': where, 'format': format
  }) -%}
{% endmacro %}
