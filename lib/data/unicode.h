/* Categories of code points. */
#ifndef DLB_DATA_UNICODE_H
#define DLB_DATA_UNICODE_H
#include <stdbool.h>
#include <stdint.h>

bool dlb_unicode_letter(uint32_t code);		/* categories of Unicode 14: letters L*, numbers N* */
bool dlb_unicode_number(uint32_t code);
bool dlb_unicode_space(uint32_t code);		/* White_Space */
#endif
