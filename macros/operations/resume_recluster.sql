{#-
  dbt run-operation resume_recluster --args '{table: analytics.events}'

  Let suspended tables be reclustered again.
-#}
{% macro resume_recluster(table=none, select=none, exclude=none, format='text') %}
  {%- do adapter.check_operation_arguments('resume_recluster', kwargs) -%}
  {%- do adapter.dispatch('resume_recluster', 'dbt')(table, select, exclude, format) -%}
{% endmacro %}

{% macro default__resume_recluster(table, select, exclude, format) %}
  {%- do recluster_operate('resume_recluster', {'table': table, 'select': select, 'exclude': exclude, 'format': format}) -%}
{% endmacro %}
