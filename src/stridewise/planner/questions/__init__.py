"""Queries of a plan: functions of a plan that return records."""
