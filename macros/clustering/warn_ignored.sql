{#-
  Warn once in a run about a cluster_by without effect: on this model, or on an ephemeral one that it selects from; and about
  configs that look like ours.
-#}
{% macro recluster_warn_ignored() %}
  {%- for warning in adapter.misspelt_configs(config) -%}
    {%- do exceptions.warn(warning) -%}
  {%- endfor -%}
  {%- if config.get('cluster_by') -%}
    {%- if config.get('materialized') == 'view' and adapter.first_time(model.unique_id) -%}
      {%- do exceptions.warn("cluster_by has no effect on " ~ model.name ~ ": a view has no data of its own to cluster.") -%}
    {%- elif config.get('materialized') != 'view' and config.get('file_format') != 'iceberg' and adapter.first_time(model.unique_id) -%}
      {%- do exceptions.warn("cluster_by has no effect on " ~ model.name ~ ": its file_format is " ~ config.get('file_format')
        ~ ", and only Iceberg tables can be clustered.") -%}
    {%- endif -%}
  {%- endif -%}
  {%- for id in (model.get('depends_on') or {}).get('nodes', []) -%}
    {%- set parent = graph.nodes.get(id) -%}
    {%- if parent and parent.config.materialized == 'ephemeral' and parent.config.get('cluster_by') and adapter.first_time(id) -%}
      {%- do exceptions.warn("cluster_by has no effect on " ~ parent.name ~ ": an ephemeral model has no table.") -%}
    {%- endif -%}
  {%- endfor -%}
{% endmacro %}
