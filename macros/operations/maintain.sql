{#-
  dbt run-operation maintain --args '{select: tag:hourly, dry_run: true}'

  Do what is due: join position delete files, rewrite manifests, expire snapshots.
-#}
{% macro maintain(table=none, select=none, exclude=none, orphans=false, dry_run=false, format='text') %}
  {%- do adapter.check_operation_arguments('maintain', kwargs) -%}
  {%- do adapter.dispatch('maintain', 'dbt')(table, select, exclude, orphans, dry_run, format) -%}
{% endmacro %}

{% macro default__maintain(table, select, exclude, orphans, dry_run, format) %}
  {%- do recluster_operate('maintain', {
    'table': table, 'select': select, 'exclude': exclude, 'orphans': orphans, 'dry_run': dry_run, 'format': format
  }) -%}
{% endmacro %}
