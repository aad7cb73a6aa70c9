"""Base images: built or imported once, then never written."""
