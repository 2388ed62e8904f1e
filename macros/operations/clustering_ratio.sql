{% macro clustering_ratio(table=none) %}{%- do recluster_operate('clustering_ratio', table, kwargs) -%}{% endmacro %}
