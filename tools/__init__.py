"""Programs that write the tables and pictures of the pages, and the result files of
measurements."""
