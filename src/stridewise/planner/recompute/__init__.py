"""Plans that compute values of their first part again for the last one, to need less memory."""
