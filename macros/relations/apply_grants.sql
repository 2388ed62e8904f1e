{#- dbt's. Open-source Spark has no statements for grants; services built on it have them for their session catalog. -#}
{% macro recluster__apply_grants(relation, grant_config, should_revoke=True) %}
  {%- if not grant_config or adapter.takes_grants(relation) -%}
    {{ return(default__apply_grants(relation, grant_config, should_revoke)) }}
  {%- endif -%}
  {%- if adapter.warn_once('grants') -%}
    {%- do exceptions.warn(
      'grants are left out: this Spark has no statement for them in the catalog of ' ~ relation ~ '. Grant in the catalog itself.'
    ) -%}
  {%- endif -%}
{% endmacro %}
