{#- The same loads, and after each one the whole table sorted again with Iceberg's own procedure. -#}
{{ config(
    materialized='incremental',
    cluster_by='l_shipdate',
    automatic_clustering=false,
    post_hook="call system.rewrite_data_files(table => '{{ this }}', strategy => 'sort', sort_order => 'l_shipdate', options => map('rewrite-all', 'true', 'target-file-size-bytes', '{{ var('sorted_file_bytes', 536870912) }}'))"
) }}

select * from {{ lineitem() }} where {{ in_this_load() }}
