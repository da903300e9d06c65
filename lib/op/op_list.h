OP(Relu)
