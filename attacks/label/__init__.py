"""Label inference: a curious site guesses another site's task label of its own patients."""
