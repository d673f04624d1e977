"""Index and search over skills, lessons and evidence."""
