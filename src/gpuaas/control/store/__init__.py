"""The only SQL. Functions take a Tx, rows come out frozen. Invariants live in the schema (tables/)."""
