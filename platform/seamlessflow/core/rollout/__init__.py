"""What a job asks of the engines that sample for it."""
