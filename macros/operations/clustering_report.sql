{#-
  dbt run-operation clustering_report
  dbt run-operation clustering_report --args '{tables: [events, analytics.users], path: report.html}'

  Write one HTML file that shows how well tables are clustered, and clustering.png beside it.
-#}
{% macro clustering_report(tables=none, path=none) %}
  {%- do adapter.check_operation_arguments('clustering_report', kwargs) -%}
  {%- do adapter.dispatch('clustering_report', 'dbt')(tables, path) -%}
{% endmacro %}

{% macro default__clustering_report(tables, path) %}
  {%- do recluster_answer(adapter.clustering_report({'tables': tables, 'path': path}, graph.nodes.values())) -%}
{% endmacro %}
