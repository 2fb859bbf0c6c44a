"""Pictures of states: a canvas over Pillow and one scene per benchmark; texts need no library."""
