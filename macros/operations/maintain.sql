{% macro maintain(table=none) %}{%- do recluster_operate('maintain', table, kwargs) -%}{% endmacro %}
