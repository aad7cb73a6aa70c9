"""From a recipe to a lock: each kind of source asks its registry what exactly there is."""
