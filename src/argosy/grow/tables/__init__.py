"""Tables of what every sequence of decisions leads to: their form, making them, judging agents on them."""
