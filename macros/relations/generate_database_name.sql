{#- The catalog of a model: its config `database` or `catalog`, or the profile's; none is the connection's current one. -#}
{% macro recluster__generate_database_name(custom_database_name=none, node=none) -%}
  {%- set catalog = node.config.get('catalog') if node is not none and node.config is defined else none -%}
  {%- do return(custom_database_name or catalog or target.database or none) -%}
{%- endmacro %}
