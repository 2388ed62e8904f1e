{#-
  dbt run-operation import_reads --args '{table: analytics.events, event_log: s3://bucket/spark-events}'

  Record the reads of tables, from the project's queries or from Spark's event logs.
-#}
{% macro import_reads(table=none, select=none, exclude=none, event_log=none, since=none, logged_as=none, format='text') %}
  {%- do adapter.check_operation_arguments('import_reads', kwargs) -%}
  {%- do adapter.dispatch('import_reads', 'dbt')(table, select, exclude, event_log, since, logged_as, format) -%}
{% endmacro %}

{% macro default__import_reads(table, select, exclude, event_log, since, logged_as, format) %}
  {%- do recluster_operate('import_reads', {
    'table': table, 'select': select, 'exclude': exclude, 'event_log': event_log, 'since': since, 'logged_as': logged_as, 'format': format
  }) -%}
{% endmacro %}
