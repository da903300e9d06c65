/* Arithmetic of float and double for map_list.h. The includer defines F(pow), F(fmod) and F(python_mod), the
 * remainder with the sign of the divisor. */
#define ADD(a, b) ((a) + (b))
#define SUB(a, b) ((a) - (b))
#define MUL(a, b) ((a) * (b))
#define DIV(a, b) ((a) / (b))
#define NEG(a) (-(a))
#define NEGATIVE(a) ((a) < 0)
#define POW(a, b) F(pow)(a, b)
#define FMOD(a, b) F(fmod)(a, b)
#define MOD(a, b) F(python_mod)(a, b)
