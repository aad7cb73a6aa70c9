"""Streams through the server: `routes` has both ends, `tickets` lets them meet, `pipe` joins, `room` bounds them."""
