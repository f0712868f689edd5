"""Many nights: how they are kept, their change points, and what people say of them."""
