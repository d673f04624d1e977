"""Commands, one file each; they compose the other folders and hold no logic."""
