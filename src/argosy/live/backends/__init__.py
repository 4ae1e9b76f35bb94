"""Where jobs really run. Each backend does the same five things (`base`) with other means."""
