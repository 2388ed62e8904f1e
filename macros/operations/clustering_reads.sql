{% macro clustering_reads(table=none) %}{%- do adapter.operate('clustering_reads', dict(kwargs, table=table), context) -%}{% endmacro %}
