{#- Whether the build about to run writes into the existing table, rather than dropping or replacing it. -#}
{% macro recluster_keeps_table(existing) %}
  {%- if existing is none or existing.is_view -%}
    {{ return(false) }}
  {%- endif -%}
  {%- set materialized = config.get('materialized') -%}
  {{ return(materialized == 'snapshot' or (materialized == 'incremental' and not should_full_refresh())) }}
{% endmacro %}
