"""What people see of the scheduler: the queue, previews, offers and entitlements. It decides nothing."""
