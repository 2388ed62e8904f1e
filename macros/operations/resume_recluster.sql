{% macro resume_recluster(table=none) %}{%- do adapter.operate('resume_recluster', dict(kwargs, table=table), context) -%}{% endmacro %}
