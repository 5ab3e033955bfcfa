"""Questions about a plan: functions of a plan that return records."""
