{#-
  dbt run-operation clustering_report
  dbt run-operation clustering_report --args '{tables: [events, analytics.users], path: report.html}'

  Write one HTML file that shows how well tables are clustered, and clustering.png beside it.
-#}
{% macro clustering_report(tables=none, select=none, exclude=none, path=none) %}
  {%- do adapter.check_operation_arguments('clustering_report', kwargs) -%}
  {%- do adapter.dispatch('clustering_report', 'dbt')(tables, select, exclude, path) -%}
{% endmacro %}

{% macro default__clustering_report(tables, select, exclude, path) %}
  {%- set arguments = {'tables': tables, 'select': select, 'exclude': exclude, 'path': path} -%}
  {%- do recluster_answer(adapter.clustering_report(arguments, graph.nodes.values())) -%}
{% endmacro %}
