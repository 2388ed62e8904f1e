{% macro clustering_depth(table=none) %}{%- do recluster_operate('clustering_depth', table, kwargs) -%}{% endmacro %}
