{% macro import_reads(table=none) %}{%- do recluster_operate('import_reads', table, kwargs) -%}{% endmacro %}
