"""Tables of the accuracy of every sequence of decisions: reading and making them, and judging agents on them."""
