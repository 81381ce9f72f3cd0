"""What the published studies say: the paper's claims answered, what goes beyond them, and the page with both."""
