"""Networks written on stacked layers."""
