{#- The model's own tblproperties and, on a clustered model, those that its first blocks already need. -#}
{% macro recluster__tblproperties_clause() -%}
  {%- set properties = adapter.current_build().creation_properties() -%}
  {%- do properties.update(config.get('tblproperties') or {}) -%}
  {%- if properties %}
    tblproperties ({{ recluster_property_list(properties) }})
  {%- endif %}
{%- endmacro %}
