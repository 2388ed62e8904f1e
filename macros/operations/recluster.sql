{% macro recluster(table=none) %}{%- do recluster_operate('recluster', table, kwargs) -%}{% endmacro %}
