{#- Recluster the table of the model that was just built, and put what became of it into dbt's response for it. -#}
{% macro recluster_after_build(relation, clustering) %}
  {%- set outcome = recluster_built(relation, clustering) -%}
  {%- set response = adapter.clustering_response(load_result('main'), relation, outcome) -%}
  {%- if response -%}
    {%- do store_result('main', response=response) -%}
  {%- endif -%}
  {%- if outcome -%}
    {%- if outcome.error -%}
      {#- The data is in place, so this is a warning; it respects --warn-error. -#}
      {%- do exceptions.warn(outcome.error) -%}
    {%- endif -%}
    {%- for warning in outcome.warnings -%}
      {%- do exceptions.warn(warning) -%}
    {%- endfor -%}
  {%- endif -%}
{% endmacro %}

{#- Recluster a table that was just built, unless it is not to be reclustered now; return the outcome, or none. -#}
{% macro recluster_built(relation, clustering) %}
  {%- if not clustering.cluster_by or not clustering.automatic_clustering or flags.EMPTY -%}
    {{ return(none) }}
  {%- endif -%}
  {%- if not recluster_is_last_batch() or adapter.clustering_turned_off(recluster_run_vars()) -%}
    {{ return(none) }}
  {%- endif -%}

  {%- set reason = adapter.cannot_recluster_after_build() -%}
  {%- if reason -%}
    {%- if adapter.first_time('cannot recluster') -%}
      {%- do exceptions.warn('Tables are not reclustered in this run: ' ~ reason) -%}
    {%- endif -%}
    {{ return(none) }}
  {%- endif -%}
  {{ return(adapter.recluster_relation(relation, clustering, recluster_run_vars(), model.unique_id)) }}
{% endmacro %}
