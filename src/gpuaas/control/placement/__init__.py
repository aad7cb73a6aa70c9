"""Placement: snapshot + request -> plan or refusal with every reason. Pure: no store, no clock."""
