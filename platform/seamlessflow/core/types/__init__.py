"""Values shared by all planes: identifiers, capability tags, states, units."""
