"""What a promise is measured against: the same thing made by hand, with nothing around it."""
