{#-
  dbt run-operation rewrite_manifests --args '{table: analytics.events}'

  Rewrite the manifests of tables to their target size.
-#}
{% macro rewrite_manifests(table=none, select=none, exclude=none, dry_run=false, format='text') %}
  {%- do adapter.check_operation_arguments('rewrite_manifests', kwargs) -%}
  {%- do adapter.dispatch('rewrite_manifests', 'dbt')(table, select, exclude, dry_run, format) -%}
{% endmacro %}

{% macro default__rewrite_manifests(table, select, exclude, dry_run, format) %}
  {%- do recluster_operate('rewrite_manifests', {
    'table': table, 'select': select, 'exclude': exclude, 'dry_run': dry_run, 'format': format
  }) -%}
{% endmacro %}
