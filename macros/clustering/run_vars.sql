{#- The vars that apply to a whole run. -#}
{% macro recluster_run_vars() %}
  {{ return({
    'automatic_clustering': var('automatic_clustering', none), 'recluster_max_bytes': var('recluster_max_bytes', none)
  }) }}
{% endmacro %}
