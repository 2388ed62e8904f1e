{% macro remove_clustering(table=none) %}{%- do recluster_operate('remove_clustering', table, kwargs) -%}{% endmacro %}
