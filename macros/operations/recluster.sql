{#-
  dbt run-operation recluster --args '{table: analytics.events, final: true}'

  Recluster tables by hand: one line for each, and exit code 1 if any failed, after the others were tried.
-#}
{% macro recluster(
  table=none, select=none, exclude=none, final=none, where=none, max_bytes=none, depth=none, strategy=none, dry_run=false,
  format='text', cluster_by=none
) %}
  {%- do adapter.check_operation_arguments('recluster', kwargs) -%}
  {%- do adapter.dispatch('recluster', 'dbt')(
    table, select, exclude, final, where, max_bytes, depth, strategy, dry_run, format, cluster_by
  ) -%}
{% endmacro %}

{% macro default__recluster(
  table, select, exclude, final, where, max_bytes, depth, strategy, dry_run, format, cluster_by
) %}
  {%- set arguments = adapter.recluster_arguments({
    'table': table, 'select': select, 'exclude': exclude, 'final': final, 'where': where, 'max_bytes': max_bytes,
    'depth': depth, 'strategy': strategy, 'dry_run': dry_run, 'format': format, 'cluster_by': cluster_by
  }) -%}
  {%- set outcomes = [] -%}
  {%- set failed = [] -%}
  {%- set targets = adapter.recluster_targets(graph.nodes.values(), arguments, recluster_run_vars()) -%}
  {%- for target in targets -%}
    {%- set outcome = adapter.recluster_target(target, arguments, recluster_run_vars()) -%}
    {%- do outcomes.append(outcome) -%}
    {%- do log(loop.index ~ ' of ' ~ loop.length ~ ' ' ~ outcome.text, info=true) -%}
    {%- if outcome.plan and arguments.format == 'text' -%}
      {%- do print(outcome.plan) -%}
    {%- endif -%}
    {%- for warning in outcome.warnings -%}
      {%- do exceptions.warn(target.relation ~ ': ' ~ warning) -%}
    {%- endfor -%}
    {%- if outcome.error -%}
      {%- do failed.append(target.relation) -%}
    {%- endif -%}
  {%- endfor -%}
  {%- if arguments.format == 'json' -%}
    {%- do print(adapter.recluster_json(arguments, targets, outcomes)) -%}
  {%- endif -%}
  {%- if failed -%}
    {%- do adapter.fail_operation(failed | length ~ ' of ' ~ targets | length ~ (' table' if targets | length == 1 else ' tables') ~ ' failed: ' ~ failed | join(', ')) -%}
  {%- endif -%}
{% endmacro %}
