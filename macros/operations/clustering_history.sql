{#-
  dbt run-operation clustering_history --args '{table: analytics.events, since: 7 days}'

  Print what happened to tables: every round of reclustering and every load between.
-#}
{% macro clustering_history(table=none, select=none, exclude=none, since=none, format='text') %}
  {%- do adapter.check_operation_arguments('clustering_history', kwargs) -%}
  {%- do adapter.dispatch('clustering_history', 'dbt')(table, select, exclude, since, format) -%}
{% endmacro %}

{% macro default__clustering_history(table, select, exclude, since, format) %}
  {%- do recluster_operate('clustering_history', {
    'table': table, 'select': select, 'exclude': exclude, 'since': since, 'format': format
  }) -%}
{% endmacro %}
