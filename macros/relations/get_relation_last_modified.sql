{#- When Iceberg tables were last loaded, in microseconds since 1970: from the current snapshot back over those that only rewrote
    files. A table without a current snapshot has never been loaded; where the load's snapshot has expired, nobody can tell. -#}
{% macro recluster__get_relation_last_modified(information_schema, relations) %}
  {%- call statement('last_modified', fetch_result=True) -%}
    with snapshots as (
      {%- for relation in relations %}
      select {{ loop.index }} as source, snapshot_id, parent_id, operation, unix_micros(committed_at) as committed_at,
        snapshot_id = (select snapshot_id from {{ relation }}.refs where name = 'main') as is_current
      from {{ relation }}.snapshots
      {%- if not loop.last %} union all {%- endif %}
      {%- endfor %}
    ),
    histories as (
      select source, max(if(is_current, snapshot_id, null)) as current_id,
        map_from_entries(collect_list(struct(snapshot_id, committed_at))) as times,
        map_from_entries(collect_list(if(operation = 'replace', struct(snapshot_id, parent_id), null))) as replaced
      from snapshots group by source
    ),
    loads as (
      select source, current_id,
        try_element_at(times, aggregate(
          map_keys(replaced), current_id, (id, _) -> if(map_contains_key(replaced, id), replaced[id], id)
        )) as last_modified
      from histories
    )
    select `schema`, identifier, last_modified, unix_micros(current_timestamp()) as snapshotted_at,
      current_id is not null and last_modified is null as load_expired
    from values
      {%- for relation in relations %}
      ({{ loop.index }}, '{{ dbt.escape_single_quotes(relation.schema) }}', '{{ dbt.escape_single_quotes(relation.identifier) }}')
      {%- if not loop.last %},{%- endif %}
      {%- endfor %}
      as sources(source, `schema`, identifier)
    left join loads using (source)
  {%- endcall -%}
  {%- do return(load_result('last_modified')) -%}
{% endmacro %}
