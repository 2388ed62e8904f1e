{% macro clustering_report(table=none) %}{%- do recluster_operate('clustering_report', table, kwargs) -%}{% endmacro %}
