{% macro rewrite_position_delete_files(table=none) %}{%- do adapter.operate('rewrite_position_delete_files', dict(kwargs, table=table), context) -%}{% endmacro %}
