"""What a verb means: may you, is it valid, one transaction. Plain functions over a Tx; no HTTP, no SQL."""
