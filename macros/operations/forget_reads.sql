{% macro forget_reads(table=none) %}{%- do recluster_operate('forget_reads', table, kwargs) -%}{% endmacro %}
