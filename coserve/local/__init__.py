"""Everything of the product on one machine: embedded servers and the processes beside them."""
