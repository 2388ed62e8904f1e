{#-
  dbt run-operation remove_orphan_files --args '{table: analytics.events}'

  Name the files under tables' locations that no snapshot knows, or delete them.
-#}
{% macro remove_orphan_files(
  table=none, select=none, exclude=none, older_than=none, force=false, dry_run=true, format='text'
) %}
  {%- do adapter.check_operation_arguments('remove_orphan_files', kwargs) -%}
  {%- do adapter.dispatch('remove_orphan_files', 'dbt')(table, select, exclude, older_than, force, dry_run, format) -%}
{% endmacro %}

{% macro default__remove_orphan_files(table, select, exclude, older_than, force, dry_run, format) %}
  {%- do recluster_operate('remove_orphan_files', {
    'table': table, 'select': select, 'exclude': exclude, 'older_than': older_than, 'force': force, 'dry_run': dry_run, 'format': format
  }) -%}
{% endmacro %}
