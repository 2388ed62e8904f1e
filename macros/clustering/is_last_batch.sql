{#-
  Whether to recluster now: always, except after the earlier batches of a microbatch model. dbt runs the materialization
  once for each batch and does not tell which one is the last. It is the one that reaches the end of the run's time range.
-#}
{% macro recluster_is_last_batch() %}
  {%- set batch = model.get('batch') -%}
  {%- if not batch -%}
    {{ return(true) }}
  {%- endif -%}
  {%- set end = invocation_args_dict.get('event_time_end') or run_started_at -%}
  {{ return(adapter.reaches(batch['event_time_end'], end)) }}
{% endmacro %}
