{#-
  dbt run-operation rewrite_position_delete_files --args '{table: analytics.events}'

  Join the small position delete files of tables.
-#}
{% macro rewrite_position_delete_files(table=none, select=none, exclude=none, dry_run=false, format='text') %}
  {%- do adapter.check_operation_arguments('rewrite_position_delete_files', kwargs) -%}
  {%- do adapter.dispatch('rewrite_position_delete_files', 'dbt')(table, select, exclude, dry_run, format) -%}
{% endmacro %}

{% macro default__rewrite_position_delete_files(table, select, exclude, dry_run, format) %}
  {%- do recluster_operate('rewrite_position_delete_files', {
    'table': table, 'select': select, 'exclude': exclude, 'dry_run': dry_run, 'format': format
  }) -%}
{% endmacro %}
