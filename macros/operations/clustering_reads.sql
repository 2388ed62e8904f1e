{% macro clustering_reads(table=none) %}{%- do recluster_operate('clustering_reads', table, kwargs) -%}{% endmacro %}
