{% macro clustering_information(table=none) %}{%- do recluster_operate('clustering_information', table, kwargs) -%}{% endmacro %}
