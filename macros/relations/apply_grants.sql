{#- dbt's; Spark has no statements for grants outside its session catalog. -#}
{% macro recluster__apply_grants(relation, grant_config, should_revoke=True) %}
  {%- if not grant_config or adapter.is_in_session_catalog(relation) -%}
    {{ return(default__apply_grants(relation, grant_config, should_revoke)) }}
  {%- endif -%}
  {%- if adapter.first_time('grants') -%}
    {%- do exceptions.warn(
      'grants are left out: Spark has no statement for them in the catalog of ' ~ relation ~ '. Grant in the catalog itself.'
    ) -%}
  {%- endif -%}
{% endmacro %}
