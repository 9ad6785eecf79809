"""Who is to blame for what failed: judgements of machines and jobs from their failures."""
