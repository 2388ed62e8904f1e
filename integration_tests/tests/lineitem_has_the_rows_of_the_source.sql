{{ same_rows_as_lineitem(ref('lineitem')) }}
