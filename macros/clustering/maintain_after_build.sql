{#- Do the maintenance that is due for the table of the model that was just built (config recluster_maintain). -#}
{% macro recluster_maintain_after_build(relation, clustering) %}
  {%- if not clustering.maintain or flags.EMPTY or not recluster_is_last_batch() -%}
    {{ return(none) }}
  {%- endif -%}
  {%- set reason = adapter.cannot_recluster() -%}
  {%- if reason -%}
    {%- if adapter.first_time('cannot maintain') -%}
      {%- do exceptions.warn('Tables are not maintained in this run: ' ~ reason) -%}
    {%- endif -%}
    {{ return(none) }}
  {%- endif -%}

  {%- set error = adapter.maintain_relation(relation) -%}
  {%- if error -%}
    {#- The data is in place, so this is a warning; it respects --warn-error. -#}
    {%- do exceptions.warn(error) -%}
  {%- endif -%}
{% endmacro %}
