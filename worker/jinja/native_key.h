/* native_key.h: reads an attribute of an item by a path such as "a.b.0". It is used by filters
 * that have such a path as an argument, which are map, sort, selectattr and others. */
#ifndef SEQD_JINJA_NATIVE_KEY_H
#define SEQD_JINJA_NATIVE_KEY_H

#include "worker/jinja/value.h"

struct template_run;

/* Returns an attribute of the item. The parameter `attribute` is a string with dots, or an
 * integer. If `attribute` is V_NONE or V_MISSING, returns the item itself. */
struct pyvalue jinja_key_get(struct template_run *r, struct pyvalue item, struct pyvalue attribute);

#endif
