{{ same_rows_as_lineitem(ref('lineitem_by_year')) }}
