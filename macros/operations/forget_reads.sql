{% macro forget_reads(table=none) %}{%- do adapter.operate('forget_reads', dict(kwargs, table=table), context) -%}{% endmacro %}
