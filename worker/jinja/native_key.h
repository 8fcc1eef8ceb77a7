/* native_key.h: reads the attribute "a.b.0" of an item, as map(attribute=), sort and selectattr
 * do. */
#ifndef SEQD_JINJA_NATIVE_KEY_H
#define SEQD_JINJA_NATIVE_KEY_H

#include "worker/jinja/value.h"

struct template_run;

/* Returns the attribute: a string with dots, an integer, or V_NONE or V_MISSING: the item
 * itself. */
struct pyvalue jinja_key_get(struct template_run *r, struct pyvalue item, struct pyvalue attribute);

#endif
