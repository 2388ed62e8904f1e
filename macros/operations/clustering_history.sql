{% macro clustering_history(table=none) %}{%- do recluster_operate('clustering_history', table, kwargs) -%}{% endmacro %}
