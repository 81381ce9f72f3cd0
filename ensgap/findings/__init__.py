"""What the published studies say: answers to the paper's claims, what goes beyond them, and the page that shows both."""
