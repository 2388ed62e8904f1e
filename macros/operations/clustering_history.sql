{#-
  dbt run-operation clustering_history --args '{table: analytics.events, since: 7 days}'

  Print what happened to tables: every round of reclustering and every load between.
-#}
{% macro clustering_history(table=none, since=none, format='text') %}
  {%- do adapter.check_operation_arguments('clustering_history', kwargs) -%}
  {%- do adapter.dispatch('clustering_history', 'dbt')(table, since, format) -%}
{% endmacro %}

{% macro default__clustering_history(table, since, format) %}
  {%- do recluster_operate('clustering_history', {'table': table, 'since': since, 'format': format}) -%}
{% endmacro %}
