"""Reading files of weights that other programs wrote, without executing anything in them."""
