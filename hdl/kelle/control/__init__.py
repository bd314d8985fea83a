"""Control of Kelle: steps, operations, loads, and the routing of results."""
