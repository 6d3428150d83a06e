"""The mechanism itself, without a model: every answer is known in closed form."""
