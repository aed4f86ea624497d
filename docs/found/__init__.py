"""What we found: the open questions of the five documents, and the exhibits that speak to them."""
