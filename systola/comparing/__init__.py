"""Parts of the verb ``compare``: designs, their figures, and the rows of the table."""
