{#- The time of each Iceberg table's last load, by its place in the list, in microseconds since 1970: that of the newest ancestor of
    the current snapshot that did more than rewrite files. If that has expired, a recluster's snapshot has recorded the time.
    A table without a current snapshot was never loaded. -#}
{% macro recluster__get_relation_last_modified(information_schema, relations) %}
  {%- call statement('last_modified', fetch_result=True) -%}
    with snapshots as (
      {%- for relation in relations %}
      select {{ loop.index }} as source, snapshot_id, parent_id, operation, committed_at, summary,
        snapshot_id = (select snapshot_id from {{ relation }}.refs where name = 'main') as is_current
      from {{ relation }}.snapshots
      {%- if not loop.last %} union all {%- endif %}
      {%- endfor %}
    ),
    histories as (
      select source, max(if(is_current, snapshot_id, null)) as current_id,
        map_from_entries(collect_list(struct(snapshot_id, if(
          operation = 'replace',
          cast(try_element_at(summary, 'recluster.loaded_at') as bigint) * 1000,
          unix_micros(committed_at)
        )))) as times,
        map_from_entries(collect_list(if(operation = 'replace', struct(snapshot_id, parent_id), null))) as replaced
      from snapshots group by source
    ),
    loads as (
      select source, current_id,
        try_element_at(times, aggregate(map_keys(replaced), current_id, (id, _) -> if(
          map_contains_key(times, try_element_at(replaced, id)), try_element_at(replaced, id), id
        ))) as last_modified
      from histories
    )
    select source, last_modified, unix_micros(current_timestamp()) as snapshotted_at,
      current_id is not null and last_modified is null as load_expired
    from (select explode(sequence(1, {{ relations | length }})) as source) left join loads using (source)
  {%- endcall -%}
  {%- do return(load_result('last_modified')) -%}
{% endmacro %}
