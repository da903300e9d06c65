/* Includes the file named by BODY once per integer type, with T, S(name), T_LEAST and T_MOST (limited to
 * int64) and A (the widest type of the same sign) defined. */
#undef T
#undef S
#undef F
#define A int64_t
#define T int8_t
#define S(name) name##_i8
#define T_LEAST INT8_MIN
#define T_MOST INT8_MAX
#include BODY
#undef T
#undef S
#undef T_LEAST
#undef T_MOST
#define T int16_t
#define S(name) name##_i16
#define T_LEAST INT16_MIN
#define T_MOST INT16_MAX
#include BODY
#undef T
#undef S
#undef T_LEAST
#undef T_MOST
#define T int32_t
#define S(name) name##_i32
#define T_LEAST INT32_MIN
#define T_MOST INT32_MAX
#include BODY
#undef T
#undef S
#undef T_LEAST
#undef T_MOST
#define T int64_t
#define S(name) name##_i64
#define T_LEAST INT64_MIN
#define T_MOST INT64_MAX
#include BODY
#undef A
#undef T
#undef S
#undef T_LEAST
#undef T_MOST
#define A uint64_t
#define T uint8_t
#define S(name) name##_u8
#define T_LEAST 0
#define T_MOST UINT8_MAX
#include BODY
#undef T
#undef S
#undef T_LEAST
#undef T_MOST
#define T uint16_t
#define S(name) name##_u16
#define T_LEAST 0
#define T_MOST UINT16_MAX
#include BODY
#undef T
#undef S
#undef T_LEAST
#undef T_MOST
#define T uint32_t
#define S(name) name##_u32
#define T_LEAST 0
#define T_MOST UINT32_MAX
#include BODY
#undef T
#undef S
#undef T_LEAST
#undef T_MOST
#define T uint64_t
#define S(name) name##_u64
#define T_LEAST 0
#define T_MOST INT64_MAX
#include BODY
#undef A
#undef T
#undef S
#undef T_LEAST
#undef T_MOST
