{% macro remove_orphan_files(table=none) %}{%- do recluster_operate('remove_orphan_files', table, kwargs) -%}{% endmacro %}
