{#-
  dbt run-operation recluster --args '{table: analytics.events, final: true}'

  Recluster tables by hand: one line for each, and exit code 1 when any failed, after the rest was tried.
-#}
{% macro recluster(table=none, final=none, where=none, max_bytes=none, depth=none, strategy=none, dry_run=false, format='text') %}
  {%- do adapter.dispatch('recluster', 'dbt')(table, final, where, max_bytes, depth, strategy, dry_run, format) -%}
{% endmacro %}

{% macro default__recluster(table, final, where, max_bytes, depth, strategy, dry_run, format) %}
  {%- set options = adapter.recluster_options({
    'final': final, 'where': where, 'max_bytes': max_bytes, 'depth': depth, 'strategy': strategy,
    'dry_run': dry_run, 'format': format
  }) -%}
  {%- set outcomes = [] -%}
  {%- set failed = [] -%}
  {%- set targets = adapter.recluster_targets(table, graph.nodes.values(), options, recluster_run_vars()) -%}
  {%- for target in targets -%}
    {%- set outcome = adapter.recluster_target(target, options, recluster_run_vars()) -%}
    {%- do outcomes.append(outcome) -%}
    {%- do log(loop.index ~ ' of ' ~ loop.length ~ ' ' ~ outcome.text, info=true) -%}
    {%- if outcome.table and options.format == 'text' -%}
      {%- do print(outcome.table) -%}
    {%- endif -%}
    {%- if outcome.error -%}
      {%- do failed.append(target.relation) -%}
    {%- endif -%}
  {%- endfor -%}
  {%- if options.format == 'json' -%}
    {%- do print(adapter.recluster_json(table, targets, outcomes)) -%}
  {%- endif -%}
  {%- if failed -%}
    {%- do exceptions.raise_compiler_error(failed | length ~ ' of ' ~ targets | length ~ ' tables failed: ' ~ failed | join(', ')) -%}
  {%- endif -%}
{% endmacro %}
