{#-
  dbt run-operation clustering_report
  dbt run-operation clustering_report --args '{table: [events, analytics.users], path: report.html}'

  Write one HTML file that shows how well tables are clustered, and a picture of the same name beside it.
-#}
{% macro clustering_report(table=none, select=none, exclude=none, path=none, tables=none) %}
  {%- do adapter.check_operation_arguments('clustering_report', kwargs) -%}
  {%- do adapter.dispatch('clustering_report', 'dbt')(table, select, exclude, path, tables) -%}
{% endmacro %}

{% macro default__clustering_report(table, select, exclude, path, tables) %}
  {%- set arguments = {
    'table': table, 'select': select, 'exclude': exclude, 'path': path, 'tables': tables
  } -%}
  {%- do recluster_answer(adapter.clustering_report(arguments, graph.nodes.values())) -%}
{% endmacro %}
