{% macro suspend_recluster(table=none) %}{%- do recluster_operate('suspend_recluster', table, kwargs) -%}{% endmacro %}
