MAP(add, 2, a + b)
