"""`paceline rank`: one task of a scheduler's job becomes one rank."""
