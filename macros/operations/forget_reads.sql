{#-
  dbt run-operation forget_reads --args '{table: analytics.events}'

  Drop the recorded reads of tables.
-#}
{% macro forget_reads(table=none, select=none, exclude=none, format='text') %}
  {%- do adapter.check_operation_arguments('forget_reads', kwargs) -%}
  {%- do adapter.dispatch('forget_reads', 'dbt')(table, select, exclude, format) -%}
{% endmacro %}

{% macro default__forget_reads(table, select, exclude, format) %}
  {%- do recluster_operate('forget_reads', {
    'table': table, 'select': select, 'exclude': exclude, 'format': format
  }) -%}
{% endmacro %}
