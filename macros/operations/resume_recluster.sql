{% macro resume_recluster(table=none) %}{%- do recluster_operate('resume_recluster', table, kwargs) -%}{% endmacro %}
