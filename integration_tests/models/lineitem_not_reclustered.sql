{#- The same loads, each sorted by the key as it arrives, and left as they are. -#}
{{ config(materialized='incremental', cluster_by='l_shipdate', automatic_clustering=false) }}

select * from {{ lineitem() }} where {{ in_this_load() }}
