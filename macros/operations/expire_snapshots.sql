{#-
  dbt run-operation expire_snapshots --args '{table: analytics.events, older_than: 7 days, dry_run: true}'

  Expire snapshots of tables, and delete the files that no other snapshot has.
-#}
{% macro expire_snapshots(
  table=none, select=none, exclude=none, older_than=none, retain_last=none, force=false, dry_run=false, format='text'
) %}
  {%- do adapter.check_operation_arguments('expire_snapshots', kwargs) -%}
  {%- do adapter.dispatch('expire_snapshots', 'dbt')(table, select, exclude, older_than, retain_last, force, dry_run, format) -%}
{% endmacro %}

{% macro default__expire_snapshots(table, select, exclude, older_than, retain_last, force, dry_run, format) %}
  {%- do recluster_operate('expire_snapshots', {
    'table': table, 'select': select, 'exclude': exclude, 'older_than': older_than, 'retain_last': retain_last, 'force': force, 'dry_run': dry_run, 'format': format
  }) -%}
{% endmacro %}
