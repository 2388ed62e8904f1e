{% macro import_reads(table=none) %}{%- do adapter.operate('import_reads', dict(kwargs, table=table), context) -%}{% endmacro %}
