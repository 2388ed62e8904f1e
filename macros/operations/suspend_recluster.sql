{#-
  dbt run-operation suspend_recluster --args '{table: analytics.events}'

  Keep everybody from reclustering tables until they are resumed.
-#}
{% macro suspend_recluster(table=none, select=none, exclude=none, format='text') %}
  {%- do adapter.check_operation_arguments('suspend_recluster', kwargs) -%}
  {%- do adapter.dispatch('suspend_recluster', 'dbt')(table, select, exclude, format) -%}
{% endmacro %}

{% macro default__suspend_recluster(table, select, exclude, format) %}
  {%- do recluster_operate('suspend_recluster', {'table': table, 'select': select, 'exclude': exclude, 'format': format}) -%}
{% endmacro %}
