"""From a lock to an image: fetched, unpacked, finished and checked in a sandbox, at the path that it will have."""
