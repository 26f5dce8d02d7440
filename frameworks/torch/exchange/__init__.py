"""What an allreduce call means: what all exchanges share."""
