{#-
  dbt run-operation clustering_reads --args '{table: analytics.events}'

  Print the known reads of tables, and the blocks that each opens.
-#}
{% macro clustering_reads(table=none, select=none, exclude=none, cluster_by=none, format='text') %}
  {%- do adapter.check_operation_arguments('clustering_reads', kwargs) -%}
  {%- do adapter.dispatch('clustering_reads', 'dbt')(table, select, exclude, cluster_by, format) -%}
{% endmacro %}

{% macro default__clustering_reads(table, select, exclude, cluster_by, format) %}
  {%- do recluster_operate('clustering_reads', {
    'table': table, 'select': select, 'exclude': exclude, 'cluster_by': cluster_by, 'format': format
  }) -%}
{% endmacro %}
