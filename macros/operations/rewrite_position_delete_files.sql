{% macro rewrite_position_delete_files(table=none) %}{%- do recluster_operate('rewrite_position_delete_files', table, kwargs) -%}{% endmacro %}
