{% macro remove_orphan_files(table=none) %}{%- do adapter.operate('remove_orphan_files', dict(kwargs, table=table), context) -%}{% endmacro %}
