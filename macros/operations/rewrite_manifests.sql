{% macro rewrite_manifests(table=none) %}{%- do recluster_operate('rewrite_manifests', table, kwargs) -%}{% endmacro %}
