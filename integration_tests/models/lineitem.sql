{{ config(materialized='incremental', cluster_by='l_shipdate') }}

select * from {{ lineitem() }} where {{ in_this_load() }}
