"""Tables of records: decoding into columns, and views of them with and without pyarrow."""
