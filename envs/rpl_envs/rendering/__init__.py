"""Pictures of states: a small numpy rasteriser and one scene per benchmark."""
