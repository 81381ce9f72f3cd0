"""What a study will do: its configuration, and its plan with every gap filled."""
